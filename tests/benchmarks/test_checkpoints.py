"""The benchmark of checkpoints: each bar can fail, and a short run of the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.checkpoints import measure as checkpoints
from benchmarks.checkpoints.flow import LONG_S, MOST_PACKET_ID, Messages, document, publishes, shuffled
from benchmarks.checkpoints.measure import INTERVALS_S, LOADS, NOT_ON_DISK, Run
from benchmarks.checkpoints.picture import draw
from benchmarks.report import Options, Report
from edgert.flow.document import from_plain
from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import V311, Publish
from edgert.operators.registry import REGISTRY


def test_messages_are_one_of_each_key_with_packet_ids_that_count_up() -> None:
    messages, decoder = Messages(), Decoder(V311)
    messages.packet(0, qos=1)
    reads = list(messages.reads(shuffled(1_000), qos=1))
    found = [message for read in reads for packets in publishes(decoder, read) for message in packets]
    assert len(reads) == 10
    assert all(isinstance(message, Publish) and message.qos == 1 for message in found)
    assert [m.packet_id for m in found if isinstance(m, Publish)] == list(range(2, 1_002))
    keys = {(m.topic, json.loads(m.payload)["channel"]) for m in found if isinstance(m, Publish)}
    assert len(keys) == 1_000
    messages._packet_id = MOST_PACKET_ID
    read = messages.packet(0, qos=1)
    (((last,),)) = list(publishes(decoder, read))
    assert isinstance(last, Publish)
    assert last.packet_id == 1


def test_the_flow_is_valid() -> None:
    assert from_plain(document(LONG_S, 3_600.0), REGISTRY).checkpoint_interval_s == 3_600.0


PLAIN = {"pause_ms": 5.0, "took_ms": 20.0, "longest_ms": 9.0, "written": 700_000, "delta": 500_000, "ids": 160_000,
         "queue": 0, "merging": False}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({}, None),
        ({"lost_s": 0.2}, "throughput lost at the default interval, 1,000 keys"),
        ({"pause_ms": 11.0}, "pause p99, 10,000 of 100,000 keys"),
        ({"written": 1_100_000}, "written by it, 10,000 of 100,000 keys"),
        ({"written": 0}, "written by it, 10,000 of 100,000 keys"),
        ({"owed": 1}, "pause p50, 10,000 of 100,000 keys"),
        ({"bytes": 0}, "to the card, 10 devices at 1 Hz, every 1 s"),
        ({"landed": 0}, "to the card, 10 devices at 1 Hz, every 1 s"),
    ],
)
def test_each_bar_can_fail(
    changed: dict[str, Any], what: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def inside(self: Run, part: str, **sizes: int) -> dict[str, Any]:
        lost = changed.get("lost_s", 0.05)
        one = PLAIN | {name: value for name, value in changed.items() if name in PLAIN}
        told: dict[str, dict[str, Any]] = {
            "overhead": {
                "with": [[2.0 + lost, 2.1]] * 3, "without": [[2.0, 2.0]] * 3, "messages": 50_000, "compactions": 1,
            },
            "pauses": {
                "rounds": [one] * 9 + [one | {"merging": True, "longest_ms": 30.0}],
                "owed": changed.get("owed", 0),
            },
            "wear": {"bytes": 10_000_000, "commits": 100, "landed": 20, "shipped": 2_000} | changed,
        }  # fmt: skip
        return told[part]

    monkeypatch.setattr(Run, "_inside", inside)
    monkeypatch.setattr(Run, "gateway", lambda run: None)
    report = Report("checkpoints", "x", {}, 1)
    checkpoints.measure(Options(False, 1, lambda text: None), report)
    failed = {figure.name for figure in report.figures.values() if not figure.holds}
    assert what in failed if what else not failed
    assert report.figures["CPU lost at the default interval, 100,000 keys"].median == pytest.approx(2.0)
    assert report.figures["flow takes nothing, longest, while state is merged, 10,000 of 100,000 keys"].values == [30.0]
    assert report.figures["to the card, 100 messages/s, 1,000 keys, every 60 s"].unit == "MB/h"
    assert what or draw(report, tmp_path).stat().st_size > 10_000


@pytest.mark.integration
def test_a_short_run_measures_everything(tmp_path: Path) -> None:
    assert main(["checkpoints", "--quick", "--out", str(tmp_path)]) in (0, 1)  # a busy machine may break a bar
    written = json.loads((tmp_path / "checkpoints.json").read_text())
    figures = written["figures"]
    assert {f"to the card, {load}, every {interval} s" for load in LOADS for interval in INTERVALS_S} <= set(figures)
    faults = {fault for figure in figures.values() for fault in figure.get("faults", [])}
    assert faults <= {NOT_ON_DISK}, "of a folder in memory the kernel counts no writes"
    assert all(figure["valid"] or figure.get("faults") for figure in figures.values())
    assert figures["kill -9 to the first message, 5,000 keys"]["median"] > 0
    assert (tmp_path / "checkpoints.png").stat().st_size > 10_000
