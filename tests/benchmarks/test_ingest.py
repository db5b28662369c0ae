"""The parts of the ingest benchmark, and a short run of the whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.ingest.flows import measured, probe
from benchmarks.ingest.load import Packets
from benchmarks.ingest.measure import BASELINE, BASELINE_AT_ONCE, RATES, SUBJECTS, figure, percentile
from benchmarks.ingest.memory import Feed
from benchmarks.ingest.trace import RANGES, messages
from edgert.codecs.registry import make
from edgert.flow.document import from_plain
from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import V311, Packet, Publish
from edgert.operators.registry import with_installed


def test_without_the_trace_packs_of_its_layout_are_made(tmp_path: Path) -> None:
    made, said = messages(tmp_path / "missing.csv")
    assert "generated" in said
    topics, payloads = [m.topic for m in made], [m.payload for m in made]
    decoded = make("senml", frozenset(RANGES)).decode_batch_untrusted(
        topics, payloads, lambda topic: {"source": topic.split("/")[1]}, 0.0
    )
    assert not decoded.bad_payloads
    assert len(decoded.rows) == len(made)
    assert all(set(RANGES) < set(row) for row in decoded.rows)


@pytest.mark.parametrize("qos", [0, 1])
def test_packets_are_publishes_with_the_time_of_sending(qos: int) -> None:
    packets = Packets(qos)
    out: list[Packet] = []
    Decoder(V311).feed_untrusted(bytes(packets.take(980, 1_000, 1_700_000_000.25)), out)
    published = [message for run in out if isinstance(run, list) for message in run if isinstance(message, Publish)]
    assert len(published) == 20
    assert [message.packet_id for message in published] == [n + 1 if qos else 0 for n in range(980, 1_000)]
    assert {json.loads(message.payload)["bt"] for message in published} == {1_700_000_000_250}


@pytest.mark.parametrize("document", [measured(0), measured(1), probe()], ids=["qos 0", "qos 1", "probe"])
def test_flows_are_valid(document: dict[str, object]) -> None:
    assert from_plain(document, with_installed()[0]).name == document["name"]


def test_a_pack_without_a_time_to_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text('1,{"e":[{"sv":"a","n":"source"}]}\n')
    with pytest.raises(ValueError, match="expected a pack that ends in"):
        messages(tmp_path / "trace.csv")


def test_percentiles_lie_between_the_values() -> None:
    assert percentile([float(n) for n in range(101)], 99) == pytest.approx(99.0)
    assert percentile([3.0], 50) == 3.0
    assert percentile([], 50) == 0.0


def test_the_flow_in_memory_takes_all_that_it_is_fed() -> None:
    feed, packets = Feed(), Packets(0)
    feed.feed(packets, 2_000, 100)
    assert feed.run.all[0].counters.rows_in == 2_000
    feed.pool.stop()


@pytest.mark.integration
@pytest.mark.long
def test_a_short_run_measures_everything(tmp_path: Path) -> None:
    assert main(["ingest", "--quick", "--out", str(tmp_path)]) in (0, 1)  # a busy machine may break a bar
    written = json.loads((tmp_path / "ingest.json").read_text())
    baselines = ((BASELINE, 0), (BASELINE, 1), (BASELINE_AT_ONCE, 0))
    wanted = {figure(what, qos, rate) for what, qos in baselines for rate in RATES}
    wanted |= {figure(s.label, s.qos, rate) for s in SUBJECTS for rate in RATES}
    assert wanted <= set(written["figures"])
    assert all(value["median"] > 0 for name, value in written["figures"].items() if "latency" not in name)
    assert len(written["ratios"]) == 6
    assert (tmp_path / "ingest.png").stat().st_size > 10_000
