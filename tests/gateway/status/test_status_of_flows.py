"""The status of a whole gateway: each flow by what it achieved, whatever other flows do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.clock import VirtualClock
from edgert.core.results.results import Acknowledgement, pack_acknowledgement
from edgert.core.settings.gateway import Central
from gateway.status.sections import central_section
from gateway.uplink.uplink import Uplink
from tests.gateway.whole_gateway import Gateway, document
from tests.gateway.worlds import status_of
from tests.waiting import in_loop


class World:
    """A gateway with flows `f` and `g`, its uplink and its status, on a clock turned by hand."""

    def __init__(self, folder: Path) -> None:
        self.gateway = Gateway(folder / "gateway.db")
        self.uplink = Uplink(
            "fleet", "g1", self.gateway.database, self.gateway.clock, self.gateway.store, lambda topic, payload: True
        )
        self.clock = VirtualClock()  # of the status: the uplink's stands still
        connection: Any = SimpleNamespace(connected=True, limits=SimpleNamespace(too_large=0, hung_up=0), error="")
        central = partial(central_section, Central(enabled=True), self.uplink, connection)
        self.status = status_of(self.gateway, central, self.clock)

    async def rows(self) -> None:
        """Each flow ships a row, and a turn of the uplink follows."""
        for name in ("f", "g"):
            row = ("window_start", "window_end", "source", "n"), [[0.0, 10.0, "a", 1]]
            result = Checkpoint(name, Position(), [], b"", *row)
            await self.gateway.store(partial(self.gateway.database.commit, [result], {}, 1))
        await self.uplink.turn()

    async def acknowledge(self, flow: str) -> None:
        [stream] = [stream for stream, _ in self.gateway.database.outbox_streams() if stream[0] == flow]
        last = self.gateway.database.last_sequences(flow, stream[1])[stream[2]]
        acknowledgement = Acknowledgement(gateway="g1", collector="c", acks={stream: last})
        await self.uplink.acknowledged_untrusted(pack_acknowledgement(acknowledgement))

    def levels(self) -> dict[str, str]:
        found = self.status.object()
        central = next(part for part in found["health"]["parts"] if part["part"] == "central")
        return {"central": central["level"]} | {flow["name"]: flow["condition"]["level"] for flow in found["flows"]}


@in_loop
async def test_a_flow_whose_results_never_land_is_bad_although_those_of_another_do(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in ("f", "g"):
        await world.gateway.flows.deploy(document(name), "test")
    world.uplink.connected()
    tokens = {flow: world.uplink.macs.token(flow) for flow in ("f", "g")}
    answer = Acknowledgement(gateway="g1", collector="c", acks={}, answers=("f", "g"), tokens=tokens)
    await world.uplink.acknowledged_untrusted(pack_acknowledgement(answer))
    for _ in range(7):
        await world.rows()
        await world.acknowledge("g")
        await world.uplink.turn()
        found = world.levels()
        world.clock.advance(10.0)
    assert found == {"central": "good", "f": "bad", "g": "idle"}
    flow = world.status.object()["flows"][0]
    assert (flow["condition"]["state"], flow["outbox_rows"]) == ("not landing", 7)
    await world.acknowledge("f")
    await world.uplink.turn()
    assert world.levels() == {"central": "good", "f": "idle", "g": "idle"}
    world.gateway.crash()


@in_loop
async def test_without_a_collector_the_fault_is_told_once_and_no_flow_that_ships_is_well(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in ("f", "g"):
        await world.gateway.flows.deploy(document(name), "test")
    world.uplink.connected()
    for _ in range(8):
        await world.rows()
        found = world.levels()
        world.clock.advance(10.0)
    assert found == {"central": "bad", "f": "warning", "g": "warning"}
    tokens = {flow: world.uplink.macs.token(flow) for flow in ("f", "g")}
    answer = Acknowledgement(gateway="g1", collector="c", acks={}, answers=("f", "g"), tokens=tokens)
    await world.uplink.acknowledged_untrusted(pack_acknowledgement(answer))
    await world.rows()
    await world.acknowledge("g")
    await world.uplink.turn()
    assert world.levels() == {"central": "good", "f": "idle", "g": "idle"}, "the collector is back, and f is next"
    for _ in range(7):
        world.clock.advance(10.0)
        await world.rows()
        await world.acknowledge("g")
        await world.uplink.turn()
        found = world.levels()
    assert found["f"] == "bad"
    world.gateway.crash()


@in_loop
async def test_a_flow_of_a_stuck_clock_says_that_time_stands_still_and_one_of_a_rare_sensor_is_well(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    gateway = world.gateway
    await gateway.flows.deploy(document("f", topic="x/{source}"), "test")
    await gateway.flows.deploy(document("g", topic="door/{source}"), "test")

    def passes(seconds: float) -> None:
        world.clock.advance(seconds)
        gateway.clock.advance(seconds)

    gateway.feed(1, 0.0, topic="door/front")
    for second in range(100):
        gateway.feed(2 + second, 5.0, topic="x/tank-3")
        passes(1.0)
        found = world.levels()
        assert found["f"] == ("good" if second < 90 else "bad"), second
    assert found["g"] == "good"
    [stuck] = [flow["condition"] for flow in world.status.object()["flows"] if flow["name"] == "f"]
    assert stuck["state"] == "time stands still"
    assert "time stands still at 2023-11-14 22:13:25 UTC" in stuck["reason"]
    assert "tank-3" in stuck["reason"]
    gateway.feed(110, 60.0, topic="x/tank-3")
    passes(1.0)
    assert world.levels()["f"] == "good"
    gateway.crash()
