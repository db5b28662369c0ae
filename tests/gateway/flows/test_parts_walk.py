"""Plans of one flow on three gateways, each of which fuses in its own way: chains are torn apart and joined again while
rows wait everywhere, and every row is counted once. No connection, but real databases, pools and links' outboxes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from edgert.flow.document import from_plain
from edgert.flow.graph import Flow
from edgert.flow.physical import Fusion
from edgert.flow.plan import Location, operator_copies
from edgert.links.messages import NOTHING, Number
from edgert.mqtt.packets.packets import Publish
from edgert.operators.registry import REGISTRY
from edgert.operators.windows import TumblingWindow
from edgert.runtime.checkpoint import departures
from edgert.store.outbox import link_outbox
from gateway.flows.plans import FLEET
from tests.gateway.flows.parts_here import parts_of
from tests.gateway.whole_gateway import Gateway
from tests.waiting import in_loop

NAMES = ("g1", "g2", "g3")


def document(draw: random.Random) -> Flow:
    """A source, chains with markers at either end, and a window that never closes; maybe a branch, copies, retries."""
    window = {"type": "tumbling_window", "input": "c", "size_s": 1_000_000, "aggregates": {"n": "sum(n)"}}
    operators: dict[str, dict[str, Any]] = {
        "in": {"type": "mqtt_source", "topic": "x/{source}", "out_of_order_s": 0},
        "first": {"type": "key_by", "input": "in", "keys": ["source"]},
        "a": {"type": "filter", "input": "first", "where": "n > 0"},
        "b": {"type": "map", "input": "a", "set": {"u": "n + 1"}},
        "mark": {"type": "key_by", "input": "b", "keys": ["source"]},
        "c": {"type": "filter", "input": "mark", "where": "u > 0"},
        "w": {**window, "instances": draw.choice([1, 2])},
        "out": {"type": "ship", "input": "w"},
    }
    if draw.random() < 0.4:
        operators["d"] = {"type": "filter", "input": "c", "where": "u < 0"}
        operators["p"] = {"type": "publish", "input": "d", "topic": "o"}
    on_error = {"on_error": {"action": "retry"}} if draw.random() < 0.3 else {}
    return from_plain({"name": "f", **on_error, "operators": operators}, REGISTRY)


class Walk:
    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.draw, self.flow = draw, document(draw)
        self.gateways = {name: Gateway(folder / name, name=name) for name in NAMES}
        for gateway in self.gateways.values():
            gateway.flows.plans._fusion = draw.choice(get_args(Fusion))
        self.parts = {name: parts_of(gateway)[0] for name, gateway in self.gateways.items()}
        self.copies = [copy for node in self.flow.nodes.values() for copy in operator_copies(node)]
        self.at, self.number, self.sent, self._ids = self.drawn(), 1, 0, itertools.count(1)

    def drawn(self) -> dict[str, Location]:
        """An assignment; the source stays."""
        return {copy: Location(self.draw.choice(NAMES) if copy != "in" else "g1", -1) for copy in self.copies}

    def here(self) -> list[Gateway]:
        return [gateway for gateway in self.gateways.values() if "f" in gateway.flows.runs]

    async def begin(self) -> None:
        for name in {at.gateway for at in self.at.values()}:
            await self.gateways[name].flows.deploy(self.flow, FLEET, self.at, 1)

    def feed(self) -> None:
        self.sent += 1
        payload = b'{"time": 1700000000, "n": 1}'
        topic = f"x/{self.draw.choice('abc')}"
        self.gateways["g1"].ingest.feed([Publish(topic, payload, 1, False, False, next(self._ids))])

    def carry(self) -> None:
        """Batches that are committed for other gateways come to them, in order; maybe not all of them."""
        for name, giver in self.gateways.items():
            for _, other in giver.database.read(link_outbox.streams):
                taker = self.gateways[other]
                run = taker.flows.runs.get("f")
                after = Number(*run.progress.links.get(name, NOTHING)) if run else NOTHING
                for batch in giver.database.read(link_outbox.pending, "f", other, after, 1 << 30) if run else ():
                    assert run is not None
                    found = departures.unpack_untrusted(batch.body, 0.0)
                    taken = [(run.entrance(one.operator), one) for one in found]
                    arrivals = [(i, one.source, one.producer, one.batch) for i, one in taken if i is not None]
                    assert len(arrivals) == len(found)
                    taker.host.deliver(run, arrivals)
                    run.progress.links[name] = (batch.epoch, batch.sequence)
                    if self.draw.random() < 0.3:
                        break

    async def change(self) -> None:
        """The next plan, as a coordinator makes it; before that some instances stand still, so that rows wait."""
        for gateway in self.here():
            if self.draw.random() < 0.5:
                gateway.pool.begin_hold(gateway.flows.runs["f"].local)
        for _ in range(3):
            self.feed()
        self.carry()
        new, self.number = self.drawn(), self.number + 1
        concerned = sorted({at.gateway for at in (*self.at.values(), *new.values())})
        taken: dict[str, Mapping[str, Any]] = {}
        for name in concerned:
            await self.parts[name].obey("f", self.number)
            if "f" in self.gateways[name].flows.runs:
                taken[name] = (await self.parts[name].stop("f"))["links"]
        exports = []
        for name in taken:
            leaving = [copy for copy in self.copies if self.at[copy].gateway == name != new[copy].gateway]
            took = {other: links[name] for other, links in taken.items() if name in links}
            exports.append(await self.parts[name].export("f", leaving, took))
        for name in concerned:
            await self.parts[name].prepare(dict(self.flow.document), new, self.number, exports)
        for name in concerned:
            await self.parts[name].commit("f", self.number)
        self.at = new

    async def step(self) -> None:
        what = self.draw.random()
        if what < 0.4:
            self.feed()
        elif what < 0.6:
            self.carry()
        elif what < 0.75:
            for gateway in self.here():
                await gateway.checkpoint()
        else:
            await self.change()

    async def finish(self) -> None:
        """Everything comes to the windows: there are no more hops than operators."""
        for _ in self.copies:
            for gateway in self.here():
                assert gateway.pool.wait_empty(list(gateway.flows.runs["f"].local), 60.0)
                await gateway.checkpoint()
            for _ in range(8):
                self.carry()

    def counted(self) -> float:
        """Rows in the windows, wherever these are."""
        found = 0.0
        for gateway in self.here():
            run = gateway.flows.runs["f"]
            for stage in run.stages.values():
                if isinstance(stage.logic, TumblingWindow) and stage.instance in run.local:
                    logic = stage.logic
                    kept = [acc for window in list(logic.windows) for acc in logic.windows.get(window, {}).values()]
                    found += sum(logic.aggregates.result(acc)["n"] for acc in kept)
        return found


@pytest.mark.parametrize("seed", range(4))
@in_loop
async def test_no_row_is_lost_or_doubled_whatever_the_plans_tear_apart_and_join(seed: int, tmp_path: Path) -> None:
    walk = Walk(tmp_path, random.Random(seed))
    await walk.begin()
    for _ in range(12):
        await walk.step()
    await walk.change()
    await walk.finish()
    assert walk.counted() == walk.sent
    for gateway in walk.gateways.values():
        gateway.crash()
