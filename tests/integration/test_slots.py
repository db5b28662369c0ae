"""Flows in slots: the same results as in one process, whatever slot is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from typing import Any

import pytest

from edgert.store.state import spill
from gateway.hosts.slot_deaths import MOST_DEATHS
from gateway.ingest.read_limits import UNCOMMITTED_BYTES
from tests.integration import impatient, truth
from tests.integration.rig import Gateway, Rig
from tests.integration.worlds import COUNTING, counted, messages_until, package, state
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

APART = {"slots": 2, "fusion": "none", "placement": "even"}
"""As many links between slots as there can be."""


def document(copies: int = 1, **more: Any) -> dict[str, Any]:
    """The flow of these tests, each operator in so many copies."""
    made = truth.document(**more)
    for operator in made["operators"].values():
        if operator["type"] != "key_by" and copies > 1:
            operator["instances"] = copies
    return made


TWENTY_MEGABYTES = [(f"s/d{n % 10}", b'{"time": %f}' % (1_700_000_000 + n * 0.02)) for n in range(1_000)]
"""Once each has 20 kB."""


CRASHING = """
import os
from edgert.flow.spec import OperatorSpec
from edgert.operators.base.logic import Emission, Logic


class Crashing(Logic):
    def process(self, batch, source, now):
        if any(row.get("crash") for row in batch.rows):
            os._exit(139)
        return [Emission(0, batch)]


SPEC = OperatorSpec("crashing", "Ends the process, as a fault in an extension does.", logic=lambda build: Crashing())
"""


def running(status: dict[str, Any]) -> bool:
    return all(slot["running"] and "rss_bytes" in slot for slot in status["slots"])


@pytest.mark.parametrize("pool", [APART, {"slots": 2}], ids=["apart", "locality"])
def test_a_flow_in_slots_gives_what_it_gives_in_one_process(rig: Rig, pool: dict[str, Any]) -> None:
    packs = truth.packs()
    gateway, collector = rig.gateway(pool=pool), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(size_s=60.0, interval_s=0.3))["accepted"]
    sent = rig.publish(truth.as_messages(packs[:500]))
    gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
    # a restart goes on from the checkpoint, a new version ships what the old one has open
    assert gateway.terminate() == 0
    gateway.start_ready()
    rig.publish(truth.as_messages(packs[500:800]))
    assert rig.deploy(gateway, truth.document(size_s=60.0, interval_s=0.4))["version"] == 2
    rig.publish(truth.as_messages(packs[800:]))
    status = gateway.wait(lambda s: running(s) and sum(o["rows_in"] for o in s["flows"][0]["operators"]), "figures")
    assert sent == 500
    assert {slot["restarts"] for slot in status["slots"]} == {0}
    rig.finish(gateway, "city-air", 0)
    assert rig.counts("city-air") == counted(packs, 60.0)
    assert gateway.now()["drops"] == []
    pids = [slot["pid"] for slot in status["slots"]]
    assert gateway.terminate() == 0
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")], "slots end with their daemon"


@pytest.mark.parametrize(
    ("pool", "copies"), [(APART, 1), ({"slots": 2}, 1), ({"slots": 2}, 2)], ids=["apart", "locality", "copies"]
)
def test_kill_9_of_slots_under_load_changes_nothing_in_the_results(rig: Rig, pool: dict[str, Any], copies: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    ended, packs = threading.Event(), list[dict[str, Any]]()
    gateway, collector = rig.gateway(pool=pool), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, document(copies, interval_s=0.3))["accepted"]
    publisher = rig.publishing(messages_until(ended, packs), rate=1_000.0)
    killed: set[int] = set()
    while len(killed) < MOST_DEATHS - 1:  # one more would stop the flow
        kill_a_slot(gateway, draw, killed)
        wanted = gateway.now()["ingest"]["messages"] + draw.randint(100, 1_500)
        gateway.wait(lambda s: s["ingest"]["messages"] > wanted, "input")  # noqa: B023
    gateway.wait(lambda s: running(s) and restarts(s) >= len(killed), "all slots")
    ended.set()
    publisher.join()
    rig.finish(gateway, "city-air", len(packs))
    assert rig.counts("city-air") == counted(packs)
    status = gateway.now()
    assert status["drops"] == []
    assert restarts(status) == len(killed)
    wait_until(lambda: "fed" in gateway.text(), "the log")


def test_a_slot_that_hangs_is_ended_and_costs_nothing(rig: Rig) -> None:
    packs = truth.packs()
    gateway, collector = rig.gateway(pool=APART), rig.collector()
    gateway.arguments[gateway.arguments.index("gateway")] = impatient.__name__
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, document(interval_s=0.3))["accepted"]
    rig.publish(truth.as_messages(packs[:500]))
    status = gateway.wait(running, "figures")
    os.kill(status["slots"][1]["pid"], signal.SIGSTOP)
    rig.publish(truth.as_messages(packs[500:]))
    gateway.wait(lambda s: s["slots"][1]["restarts"], "the end of the slot that hangs")
    rig.finish(gateway, "city-air", len(packs))
    assert rig.counts("city-air") == counted(packs)
    assert gateway.now()["drops"] == []
    wait_until(lambda: f"has not reported for {impatient.SILENT_S:.0f} s and is killed" in gateway.text(), "the log")


def test_a_slot_that_is_away_for_long_under_load_costs_nothing(rig: Rig) -> None:
    """More comes meanwhile than the database takes of a flow's input."""
    padded = [(topic, payload[:-1] + b', "pad": "%s"}' % (b"p" * 20_000)) for topic, payload in TWENTY_MEGABYTES]
    gateway, collector = rig.gateway(pool={"slots": 1}), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, COUNTING)["accepted"]
    status = gateway.wait(running, "figures")
    publisher = rig.publishing(padded, rate=300.0)
    gateway.wait(lambda s: s["ingest"]["messages"], "input")
    os.kill(status["slots"][0]["pid"], signal.SIGSTOP)
    status = gateway.wait(
        lambda s: s["flows"][0]["spilled_messages"] and s["ingest"]["paused_s"] > 1.0, "a full database"
    )
    assert status["slots"][0]["backlog_bytes"] < spill.QUOTA_BYTES + 2 * UNCOMMITTED_BYTES
    os.kill(status["slots"][0]["pid"], signal.SIGKILL)
    publisher.join()
    rig.finish(gateway, "counting", len(padded))
    assert sum(rig.counts("counting").values()) == len(padded)
    assert gateway.now()["drops"] == []


@pytest.mark.long
def test_a_flow_that_ends_its_slot_again_and_again_is_stopped_and_no_other(rig: Rig) -> None:
    gateway, collector = rig.gateway(pool={"slots": 1}), rig.collector()
    gateway.env = package(rig.folder / "installed", "crashing", CRASHING)
    collector.start()
    gateway.start_ready()
    for name in ("counting", "beside"):
        assert rig.deploy(gateway, COUNTING | {"name": name})["accepted"]
    crashing = json.loads(json.dumps(COUNTING | {"name": "crashing"}))
    crashing["operators"]["readings"]["topic"] = "t/{source}"
    crashing["operators"]["crash"] = {"type": "crashing", "input": "readings"}
    crashing["operators"]["by_source"]["input"] = "crash"
    assert rig.deploy(gateway, crashing)["accepted"]
    publisher = rig.publishing(TWENTY_MEGABYTES, rate=40.0)
    gateway.wait(lambda s: running(s) and s["ingest"]["messages"], "input")
    rig.publish([("t/d", b'{"time": 1700000000, "crash": true}')])
    gateway.progress = lambda: gateway.text().count("slot 0 died")  # each start takes seconds on a busy machine
    gateway.wait(lambda s: state(s, "crashing") == "failed", "the end of the flow that is to blame", 90.0)
    gateway.progress = None
    publisher.join()
    status = gateway.wait(running, "the slot")
    assert (state(status, "counting"), state(status, "beside")) == ("running", "running")
    assert status["slots"][0]["restarts"] == MOST_DEATHS
    for name in ("counting", "beside"):
        rig.finish(gateway, name, len(TWENTY_MEGABYTES) + 1)
        assert sum(rig.counts(name).values()) == len(TWENTY_MEGABYTES)


def restarts(status: dict[str, Any]) -> int:
    return sum(slot["restarts"] for slot in status["slots"])


def kill_a_slot(gateway: Gateway, draw: random.Random, killed: set[int]) -> None:
    """One that runs, if one does. A slot whose death was not noticed yet is still shown: `killed` has their pids."""
    up = [slot["pid"] for slot in gateway.now()["slots"] if slot["running"] and slot["pid"] not in killed]
    if up:
        killed.add(pid := draw.choice(up))
        os.kill(pid, signal.SIGKILL)
