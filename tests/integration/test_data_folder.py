"""Every file of the data folder deleted, emptied, cut, flipped or replaced by yesterday's: what is lost is said.

The gateway is killed amid its work, the file is harmed, more messages come, it starts again. All messages are in one
open window, so that what its flow held is all there is to lose. Said means: in the status, in the log and in the table
`gaps`; and never more is missing than is said.
"""

from __future__ import annotations

import json
import shutil
import time
from typing import Any

import pytest

from tests.integration.harms import (
    FILES,
    HARMS,
    Harm,
    all_yesterdays,
    delete,
    dropped,
    empty,
    flip,
    keep,
    log_and_mark,
    log_and_mark_flipped,
    messages_said,
)  # fmt: skip
from tests.integration.rig import Gateway, Message, Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

FIRST, SECOND, THIRD = 300, 300, 100
NOON = time.time() // 86_400 * 86_400 - 43_200.0


def document() -> dict[str, Any]:
    window = {"type": "tumbling_window", "input": "readings", "size_s": 43_200, "aggregates": {"n": "count()"}}
    return {
        "name": "f",
        "checkpoint": {"interval_s": 0.2},
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "room/{source}", "idle_timeout_s": 3600},
            "window": window,
            "central": {"type": "ship", "input": "window"},
        },
    }


def messages(many: int, first: int) -> list[Message]:
    return [("room/hall", json.dumps({"time": NOON + n, "n": n}).encode()) for n in range(first, first + many)]


def taken(gateway: Gateway, many: int) -> None:
    gateway.wait(lambda s: s["ingest"]["messages"] >= many, f"{many} messages")
    gateway.wait_anew(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")


def harmed(rig: Rig, harm: Harm, name: str) -> tuple[int, list[str], dict[str, Any]]:
    """(messages that are missing, what the tables say is missing, the status after the start)."""
    gateway, collector = rig.gateway(), rig.collector()
    gateway.progress = lambda: int(2 * gateway.cpu_s)  # a start may take long on a busy machine
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, document())["accepted"]
    rig.publish(messages(FIRST, 0))
    taken(gateway, FIRST)
    yesterday = rig.folder / "yesterday"
    keep(gateway.data, yesterday)
    rig.publish(messages(SECOND, FIRST))
    taken(gateway, FIRST + SECOND)
    gateway.kill()
    harm(gateway.data / name, yesterday, 28)
    rig.publish(messages(THIRD, FIRST + SECOND))
    gateway.start_ready()
    gateway.wait(lambda s: any(flow["state"] == "running" for flow in s["flows"]), "its flow")
    gateway.wait_anew(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
    rig.publish(messages(1, FIRST + SECOND + THIRD))
    gateway.settle()
    status = gateway.wait_anew(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
    assert rig.tell(gateway, "flows/f", b"", "flows/f/state")["accepted"]
    rig.drained(gateway)
    wait_until((rig.tables / "landing" / "f").exists, "the landing table")
    counted = sum(row["n"] for row in rig.landed("f"))
    gaps = [row["text"] for row in rig.table("gaps")] if (rig.tables / "gaps").exists() else []
    return FIRST + SECOND + THIRD + 1 - counted, gaps, status


def check(rig: Rig, harm: Harm, name: str) -> int:
    missing, gaps, status = harmed(rig, harm, name)
    said = [flow["gap"] for flow in status["flows"] if flow["gap"]]
    ingest = status["ingest"]
    counted = messages_said(gaps), dropped(status, "no flow takes it"), ingest["ambiguous"]
    print(f"{name} {harm.__name__}: {missing} missing, said {counted}: {gaps or said or 'nothing'}")
    assert -ingest["perhaps_repeated"] <= missing, "none is counted twice that is not counted as perhaps repeated"
    unknown = any("is not known" in text for text in said)
    assert unknown or missing <= sum(counted)
    if missing > 0:
        assert gaps, "in the tables"
        assert said, "in the status"
        assert any(line.partition(";")[0] in rig.processes[0].text() for line in said), "in the log"
        assert unknown or missing == sum(counted)
    return missing


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        (delete, "gateway.db-wal"), (empty, "gateway.db"), (flip, "gateway.db-wal"),
        (log_and_mark, "gateway.db"), (log_and_mark_flipped, "gateway.db"),
    ],
)  # fmt: skip
def test_of_a_database_that_is_gone_or_went_back_all_that_is_lost_is_said(harm: Harm, name: str, rig: Rig) -> None:
    assert check(rig, harm, name) > 0


def test_of_a_folder_that_is_put_back_as_a_whole_nothing_is_known(rig: Rig) -> None:
    """The stated limit (docs/data-safety.md): nothing in the folder tells, and no result that left since does."""
    missing, gaps, status = harmed(rig, all_yesterdays, "gateway.db")
    assert (missing, gaps, status["database"]["lost"]) == (SECOND, [], "")


def test_a_folder_that_is_gone_as_a_whole_is_said_for_a_flow_that_ships_nothing(rig: Rig) -> None:
    """Of such a flow the tables know nothing: only the sensors' broker has a session that tells."""
    gateway = rig.gateway()
    gateway.progress = lambda: int(2 * gateway.cpu_s)
    gateway.start_ready()
    shipless = document()
    shipless["operators"]["central"] = {"type": "publish", "input": "window", "topic": "counted"}
    assert rig.deploy(gateway, shipless)["accepted"]
    rig.publish(messages(FIRST, 0))
    taken(gateway, FIRST)
    assert gateway.now()["ingest"]["unknown_sessions"] == 0
    gateway.kill()
    shutil.rmtree(gateway.data)
    gateway.start_ready()
    gateway.wait(lambda s: any(flow["state"] == "running" for flow in s["flows"]), "its flow")
    status = gateway.wait_anew(lambda s: s["ingest"]["connected"] and s["database"]["lost"], "what is lost")
    assert status["ingest"]["unknown_sessions"] == 1
    assert [flow["gap"] for flow in status["flows"]] == [status["database"]["lost"]]
    assert "of which the data folder knows nothing" in status["database"]["lost"]
    wait_until(lambda: status["database"]["lost"] in gateway.text(), "the log")
    gateway.kill()
    gateway.start_ready()
    again = gateway.wait_anew(lambda s: s["ingest"]["connected"], "the broker")
    assert (again["ingest"]["unknown_sessions"], again["database"]["lost"]) == (0, ""), "it is said once"


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", HARMS)
def test_whatever_happens_to_a_file_of_the_data_folder_what_is_lost_is_said(harm: Harm, name: str, rig: Rig) -> None:
    missing = check(rig, harm, name)
    if name not in ("gateway.db", "gateway.db-wal"):
        assert missing == 0
