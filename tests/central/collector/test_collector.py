"""The collector apart from MQTT: messages in, commits, acknowledgements out."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from edgert.central.collector.collector import Collector
from edgert.central.collector.inbox import ResultInbox, ResultMessage
from edgert.central.collector.known_gateway import MOST_NEWS, KnownGateway
from edgert.central.landing.acceptance import SourceKey
from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.flow_table import FlowTable
from edgert.central.landing.landing import Landing
from edgert.central.landing.report import LandingReport
from edgert.central.tables.table import TableError
from edgert.core.clock import VirtualClock
from edgert.core.compression import compressed, expanded_size
from edgert.core.results.pieces import cut
from edgert.core.results.results import (
    MOST_STREAMS,
    EpochHello,
    GapBatch,
    OpenBatch,
    RowsBatch,
    pack_result,
    results_topic,
)
from tests.central.results_examples import FLOW, Gateway, contribution

EPOCH = 1 << 32


def message(result: LandingBatch | EpochHello, gateway: str | None = None) -> ResultMessage:
    assert isinstance(result, OpenBatch | RowsBatch | GapBatch | EpochHello)
    return ResultMessage(results_topic("f", gateway or result.gateway, result.flow), pack_result(result))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def collector(tmp_path: Path, clock: VirtualClock) -> Collector:
    return Collector("c1", Landing(str(tmp_path)), clock, hold_s=10.0, hold_bytes=10_000)


def test_acknowledgement_says_what_landed_and_nothing_more(collector: Collector) -> None:
    g = Gateway("g1")
    opening, second, third = g.open(), g.rows(contribution(0, "a", 1.0)), g.rows(contribution(0, "b", 1.0))
    (said,) = collector.handle([message(opening), message(third)])
    assert (said.gateway, said.collector, said.acks) == ("g1", "c1", {(FLOW, EPOCH, 0): 1})
    assert collector.counters.held == 1
    (said,) = collector.handle([message(second)])
    assert said.acks == {(FLOW, EPOCH, 0): 3}
    assert collector.counters.rows == 2


def test_duplicate_is_acknowledged_again_without_a_commit(collector: Collector) -> None:
    g = Gateway("g1")
    opening = message(g.open())
    collector.handle([opening])
    commits = collector.counters.commits
    (said,) = collector.handle([opening])
    assert said.acks == {(FLOW, EPOCH, 0): 1}
    assert collector.counters.commits == commits
    assert collector.counters.duplicates == 1


def test_hello_of_an_unknown_flow_is_answered_without_an_entry(collector: Collector) -> None:
    (said,) = collector.handle([message(EpochHello(gateway="g9", flow=FLOW))])
    assert (said.acks, said.answers) == ({}, (FLOW,))


def test_an_answer_repeats_the_token_of_the_newest_hello_once(collector: Collector) -> None:
    hellos = [message(EpochHello(gateway="g1", flow=FLOW, token=token)) for token in (b"older", b"newer")]
    (said,) = collector.handle(hellos)
    assert (said.answers, said.tokens) == ((FLOW,), {FLOW: b"newer"})
    (said,) = collector.handle([message(EpochHello(gateway="g1", flow=FLOW))])
    assert (said.answers, said.tokens) == ((FLOW,), {})


def test_hello_after_a_restart_is_answered_from_the_tables(collector: Collector, tmp_path: Path) -> None:
    old, new = Gateway("g1"), Gateway("g1", epoch=5 << 32)
    collector.handle([message(b) for b in (old.open(), new.open(), new.rows(contribution(0, "a", 1.0)))])
    again = Collector("c2", Landing(str(tmp_path)), VirtualClock(), 10.0, 10_000)
    (said,) = again.handle([message(EpochHello(gateway="g1", flow=FLOW))])
    assert said.acks == {(FLOW, 5 << 32, 0): 2}
    assert said.greatest_epoch(FLOW) == 5 << 32


def test_hello_is_told_of_the_epochs_that_it_names(tmp_path: Path, collector: Collector) -> None:
    old, new = Gateway("g1"), Gateway("g1", epoch=5 << 32)
    collector.handle([message(b) for b in (old.open(), old.rows(contribution(0, "a", 1.0)), new.open())])
    again = Collector("c2", Landing(str(tmp_path)), VirtualClock(), 10.0, 10_000)
    (said,) = again.handle([message(EpochHello(gateway="g1", flow=FLOW, epochs=(9 << 32, EPOCH)))])
    assert said.acks == {(FLOW, 5 << 32, 0): 1, (FLOW, EPOCH, 0): 2}


def test_what_another_collector_landed_meanwhile_is_not_waited_for(
    collector: Collector, clock: VirtualClock, tmp_path: Path
) -> None:
    """One that was cut off, or whose lease had gone to another, goes on: nobody will send that again."""
    g = Gateway("g1")
    collector.handle([message(g.open())])
    other = Collector("c2", Landing(str(tmp_path)), clock, 10.0, 10_000)
    other.handle([message(g.rows(contribution(0, "a", 1.0)))])
    third = g.rows(contribution(60, "a", 1.0))
    assert collector.handle([message(third)]) == []
    clock.advance(10.0)
    collector.handle([])
    (said,) = collector.handle([message(third)])
    assert said.acks == {(FLOW, EPOCH, 0): 3}


class SlowAtHellos(Landing):
    """Takes 4 ms of a clock for each hello."""

    clock = VirtualClock()

    def of_flow(self, gateway: str, flow: str, epochs: Iterable[int] = ()) -> dict[SourceKey, int]:
        self.clock.advance(0.004)
        return super().of_flow(gateway, flow, epochs)


def test_hellos_of_invented_names_hold_up_no_gateway_with_results(tmp_path: Path) -> None:
    landing = SlowAtHellos(str(tmp_path))
    collector, g = Collector("c1", landing, landing.clock, 10.0, 10_000), Gateway("g1")
    collector.handle([message(g.open())])
    names = [f"n{number}" for number in range(150)]
    answered: set[str] = set()
    for _ in ("names that are new", "names that have cost time already"):
        waiting = [message(EpochHello(gateway=name, flow=FLOW)) for name in names]
        said = collector.handle([*waiting, message(g.rows(contribution(0, "a", 1.0)))])
        assert "g1" in {a.gateway for a in said}, "its results land in the first call"
        assert len(said) < 100, "what is known is said before all are answered"
        answered |= {a.gateway for a in said}
    while collector.late:
        answered |= {a.gateway for a in collector.handle([])}
    assert answered == {"g1", *names}, "a new gateway has its turn, too"


def test_held_too_long_is_dropped_and_taken_when_it_comes_again(collector: Collector, clock: VirtualClock) -> None:
    g = Gateway("g1")
    opening, second = g.open(), g.rows(contribution(0, "a", 1.0))
    collector.handle([message(second)])
    clock.advance(10.0)
    collector.handle([])
    assert (collector.counters.held, collector.counters.expired) == (0, 1)
    (said,) = collector.handle([message(opening)])
    assert said.acks == {(FLOW, EPOCH, 0): 1}
    (said,) = collector.handle([message(second)])
    assert said.acks == {(FLOW, EPOCH, 0): 2}


class FullDisk(Landing):
    full = True

    def land(self, *told: Any) -> LandingReport:
        if self.full:
            raise TableError("no space left on device")
        return super().land(*told)


def test_nothing_is_acknowledged_while_a_table_cannot_be_written(tmp_path: Path) -> None:
    landing = FullDisk(str(tmp_path))
    collector = Collector("c1", landing, VirtualClock(), 10.0, 10_000)
    g = Gateway("g1")
    opening, second = message(g.open()), message(g.rows(contribution(0, "a", 1.0)))
    assert collector.handle([opening]) == []
    assert collector.handle([second]) == []
    # A repetition of what waits for its commit is not acknowledged either.
    assert [a.acks for a in collector.handle([opening])] in ([], [{}])
    assert collector.waits is True
    assert "no space left" in collector.counters.last_error
    landing.full = False
    (said,) = collector.handle([])
    assert said.acks == {(FLOW, EPOCH, 0): 2}
    assert collector.handle([]) == []
    assert collector.counters.last_error == ""


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x80", b"{}", bytes(range(256))])
def test_garbage_is_kept_for_people_and_hurts_nobody(collector: Collector, tmp_path: Path, payload: bytes) -> None:
    g = Gateway("g1")
    (said,) = collector.handle([ResultMessage(results_topic("f", "g1", FLOW), payload), message(g.open())])
    assert said.acks == {(FLOW, EPOCH, 0): 1}
    assert collector.counters.malformed == 1
    assert (tmp_path / "quarantine" / "_delta_log").is_dir()


def test_result_under_another_gateway_s_topic_is_not_taken(collector: Collector) -> None:
    assert collector.handle([message(Gateway("g1").open(), gateway="g2")]) == []
    assert (collector.counters.malformed, collector.counters.rows) == (1, 0)


def test_full_inbox_makes_the_network_wait_and_then_drops() -> None:
    inbox = ResultInbox(most_bytes=10, patience_s=0.01)
    assert inbox.put(ResultMessage("t", b"x" * 50))  # alone, even a large one fits
    assert not inbox.put(ResultMessage("t", b"x"))
    assert inbox.dropped == 1
    assert len(inbox.take(0, 0, 0)) == 1
    assert inbox.put(ResultMessage("t", b"x"))


def test_a_message_that_waited_meanwhile_is_not_gathered_for_as_long_again() -> None:
    now = [100.0]
    inbox = ResultInbox(most_bytes=1_000, monotonic=lambda: now[0])
    inbox.put(ResultMessage("t", b"1"))
    now[0] += 3_600.0
    inbox.put(ResultMessage("t", b"2"))
    assert len(inbox.take(3_600.0, 1_000, 0)) == 2, "at once"


def test_so_much_is_gathered_as_it_is_before_compression() -> None:
    inbox = ResultInbox(most_bytes=1_000)
    inbox.put(ResultMessage("t", compressed(bytes(5_000))))
    assert len(inbox.take(3_600.0, 5_000, 0)) == 1
    inbox.put(ResultMessage("t", zstandard.FRAME_HEADER + b"damaged"))
    assert len(inbox.take(3_600.0, 11, 0)) == 1


def test_small_messages_with_much_in_them_are_landed_in_parts(tmp_path: Path) -> None:
    at_once: list[int] = []

    class Noting(Landing):
        def land(self, batches: Sequence[LandingBatch], *more: Any) -> LandingReport:
            at_once.append(len(batches))
            return super().land(batches, *more)

    collector = Collector("c1", Noting(str(tmp_path)), VirtualClock(), 10.0, 10_000, land_bytes=20_000)
    g = Gateway("g1")
    rows = [contribution(0, "a", 1.0)] * 100
    messages = [message(g.open()), *(message(g.rows(*rows)) for _ in range(7))]
    content = expanded_size(messages[1].payload)
    assert len(messages[1].payload) < 1_000
    (said,) = collector.handle(messages)
    assert (said.acks, collector.counters.rows) == ({(FLOW, EPOCH, 0): 8}, 700)
    assert max(at_once) <= 20_000 // content + 2


def test_what_is_held_counts_as_large_as_it_is_before_compression(collector: Collector) -> None:
    """The collector of these tests holds 10,000 bytes."""
    g = Gateway("g1")
    g.open()
    big = message(g.rows(*[contribution(0, "a", 1.0)] * 200))
    assert len(big.payload) < 1_000
    collector.handle([big])
    assert (collector.counters.held, collector.counters.not_held) == (0, 1)


def test_a_result_that_was_damaged_in_its_compressed_form_goes_to_quarantine(collector: Collector) -> None:
    g = Gateway("g1")
    whole = message(g.rows(*[contribution(0, "a", 1.0)] * 50))
    assert whole.payload.startswith(zstandard.FRAME_HEADER)
    collector.handle([ResultMessage(whole.topic, whole.payload[:-9])])
    assert collector.counters.malformed == 1


def test_waiting_network_goes_on_when_the_inbox_is_emptied() -> None:
    inbox = ResultInbox(most_bytes=1, patience_s=60.0)
    inbox.put(ResultMessage("t", b"1"))
    network = threading.Thread(target=inbox.put, args=(ResultMessage("t", b"2"),))
    network.start()
    assert [m.payload for m in inbox.take(0, 1, 60.0)] == [b"1"]
    assert [m.payload for m in inbox.take(0, 1, 60.0)] == [b"2"]
    network.join(60.0)
    assert inbox.dropped == 0


def test_an_answer_names_all_streams_of_the_greatest_epoch_however_many_flows_there_are() -> None:
    """A new card goes on from what it says: rows of a stream that is missing would not count any more."""
    known = KnownGateway()
    flows = [f"f{n}" for n in range(1_000)]
    for flow, epoch, stream in itertools.product(flows, (EPOCH, 2 * EPOCH), range(MOST_STREAMS)):
        known.acknowledge(flow, epoch, stream, 1)
    assert all(known.answer(EpochHello(gateway="g1", flow=flow), {}) for flow in flows)
    acks = known.acknowledgement("g1", "c1").acks
    assert acks.keys() >= {(flow, 2 * EPOCH, stream) for flow in flows for stream in range(MOST_STREAMS)}
    assert {epoch for flow, epoch, _ in acks if flow == flows[-1]} == {2 * EPOCH}
    assert known.acknowledgement("g1", "c1").acks == {}, "what is not new is not said again"


def test_a_hello_that_asks_for_more_than_an_acknowledgement_names_has_no_answer_yet() -> None:
    """The gateway would take streams that are missing for lost, and asks again."""
    known = KnownGateway()
    for stream in range(MOST_NEWS - 1):
        known.tell(FLOW, 9 * EPOCH, stream, 1)
    hello = EpochHello(gateway="g1", flow="other", epochs=(EPOCH,))
    found = {(EPOCH, 0): 3, (EPOCH, 1): 4, (2 * EPOCH, 0): 5}
    assert not known.answer(hello, found)
    assert known.acknowledgement("g1", "c1").answers == ()
    assert known.answer(hello, found)
    said = known.acknowledgement("g1", "c1")
    assert said.answers == ("other",)
    assert said.acks == {("other", *stream): n for stream, n in found.items()}


def test_what_is_kept_of_names_is_bounded_and_learned_again_from_the_tables(tmp_path: Path) -> None:
    landing = Landing(str(tmp_path))
    small = Collector("c", landing, VirtualClock(), 10.0, 10_000, most_streams=4, most_gateways=3)
    gateways = [Gateway(f"g{i}") for i in range(8)]
    for g in gateways:
        (said,) = small.handle([message(g.open())])
        assert said.acks == {(FLOW, EPOCH, 0): 1}
    assert (len(small.gateways), len(small.landed), len(small._acceptance._streams)) == (3, 4, 4)
    for g in gateways:
        (said,) = small.handle([message(g.rows(contribution(0, "a", 1.0)))])
        assert said.acks == {(FLOW, EPOCH, 0): 2}
    for i in range(50):
        small.handle([message(EpochHello(gateway=f"x{i}", flow=f"y{i}"))])
    assert len(small.gateways) == 3
    assert list(landing._flows) == [FLOW]


def test_more_gateways_at_once_than_are_kept_all_land(tmp_path: Path) -> None:
    small = Collector("c", Landing(str(tmp_path)), VirtualClock(), 10.0, 10_000, most_streams=2, most_gateways=2)
    gateways = [Gateway(f"g{i}") for i in range(6)]
    small.handle([message(g.open()) for g in gateways])
    assert (small.counters.last_error, small.counters.commits) == ("", 1)
    for g in gateways:
        (said,) = small.handle([message(EpochHello(gateway=g.name, flow=FLOW))])
        assert said.acks == {(FLOW, EPOCH, 0): 1}


def test_flows_of_one_gateway_are_bounded_and_those_it_has_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = Collector("c", Landing(str(tmp_path)), VirtualClock(), 10.0, 10_000, most_flows=2)
    flows = [Gateway("g1", flow=f"f{i}") for i in range(5)]
    small.handle([message(g.open()) for g in flows])
    (said,) = small.handle([message(flows[0].rows(contribution(0, "a", 1.0)))])
    assert said.acks == {("f0", EPOCH, 0): 2}
    assert small.counters.refused_flows == 3
    assert sorted(p.name for p in (tmp_path / "landing").iterdir()) == ["f0", "f1"]
    assert len([r for r in caplog.records if "at most 2 flows" in r.message]) == 1
    again = Collector("c", Landing(str(tmp_path)), VirtualClock(), 10.0, 10_000, most_flows=2)
    again.handle([message(Gateway("g1", flow="f4").open())])
    assert again.counters.refused_flows == 1


def test_new_gateway_does_not_cost_a_look_at_all_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = Landing(str(tmp_path))
    landing.land([Gateway("g1", flow=f"f{i}").open() for i in range(5)])
    collector = Collector("c", landing, VirtualClock(), 10.0, 10_000)
    collector.handle([message(EpochHello(gateway="g0", flow="f0"))])
    refreshed: list[str] = []
    refresh = FlowTable.refresh

    def counted(table: FlowTable) -> bool:
        refreshed.append(table.table.uri)
        return refresh(table)

    monkeypatch.setattr(FlowTable, "refresh", counted)
    collector.handle([message(EpochHello(gateway=f"x{i}", flow="f1")) for i in range(10)])
    assert {uri.rpartition("/")[2] for uri in refreshed} == {"f1"}
    (said,) = collector.handle([message(EpochHello(gateway="g1", flow="f1"))])
    assert set(said.acks) == {("f1", EPOCH, 0)}
    # What another collector opens meanwhile is seen when its flow says hello.
    Landing(str(tmp_path)).land([Gateway("x3", flow="f2").open()])
    (said,) = collector.handle([message(EpochHello(gateway="x3", flow="f2"))])
    assert said.acks == {("f2", EPOCH, 0): 1}


def test_every_stream_that_lands_is_acknowledged_and_named_again_when_it_is_asked_for(collector: Collector) -> None:
    """However many epochs come at once, as after an outage with many deployments: an outbox waits for each."""
    gateways = [Gateway("g1", epoch=n << 32) for n in range(1, 81)]
    openings = [message(g.open()) for g in gateways]
    (said,) = collector.handle(openings)
    assert len(said.acks) == 80
    (said,) = collector.handle([openings[0]])
    assert said.acks[(FLOW, EPOCH, 0)] == 1
    (said,) = collector.handle([message(EpochHello(gateway="g1", flow=FLOW, epochs=(2 * EPOCH, 3 * EPOCH)))])
    assert {(FLOW, 2 * EPOCH, 0), (FLOW, 3 * EPOCH, 0)} <= said.acks.keys()
    assert (FLOW, EPOCH, 0) not in said.acks, "what nobody asks for is not repeated for ever"


def test_a_result_in_pieces_lands_as_a_whole_one(collector: Collector) -> None:
    g = Gateway("g1")
    collector.handle([message(g.open())])
    whole = message(g.rows(contribution(0, "a", 1.0)))
    pieces = [ResultMessage(whole.topic, p) for p in cut(whole.payload, 20, "g1", FLOW, (EPOCH, 0, 2))]
    assert len(pieces) > 3
    assert collector.handle(pieces[:-1]) == []
    (said,) = collector.handle(pieces[-1:])
    assert said.acks == {(FLOW, EPOCH, 0): 2}
    assert (collector.counters.rows, collector.counters.malformed) == (1, 0)
