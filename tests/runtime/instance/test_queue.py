"""The queue of an instance against a plain list."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch
from edgert.runtime.instance.inner_queue import InnerQueue
from edgert.runtime.instance.queue import Entry, Overload, Queue
from edgert.runtime.instance.source_queue import SourceQueue

BUDGET = 100
SIZES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 140)), max_size=30)
OPERATIONS = st.lists(st.one_of(st.tuples(st.integers(0, 5), st.integers(0, 140)), st.integers(1, 7)), max_size=40)


def batch(first: int, rows: int, size: int, raw: bool = False, owed: bool = False) -> Batch | RawBatch:
    if raw:
        return RawBatch(
            [f"t{first + n}" for n in range(rows)], [b"%d" % (first + n) for n in range(rows)], 0.0, 1.0, size, owed
        )
    return Batch([{"time": 0.0, "source": "a", "n": first + n} for n in range(rows)], 0.0, float(first), size)


def numbers(entries: Any) -> list[int]:
    return [
        int(n) for e in entries
        for n in (e.batch.payloads if isinstance(e.batch, RawBatch) else [r["n"] for r in e.batch.rows])
    ]  # fmt: skip


@given(OPERATIONS, st.sampled_from(["shed-oldest", "shed-newest", "sample"]), st.booleans())
def test_every_row_put_is_taken_in_order_or_counted_as_shed(operations: Any, overload: Overload, raw: bool) -> None:
    queue = SourceQueue(BUDGET, overload)
    put = taken = shed = greatest = 0
    seen: list[int] = []
    rows = 0
    for operation in operations:
        if isinstance(operation, int):
            if queue.entries:
                limit = min(operation, queue.rows)
                before = queue.rows
                entries = queue.take(limit)
                assert entries
                assert sum(len(e.batch) for e in entries) <= limit
                rows -= before - queue.rows
                seen += numbers(entries)
                taken += sum(len(e.batch) for e in entries)
        else:
            count, size = operation if operation[0] else (0, 0)
            change, lost = queue.put(Entry(0, batch(put, count, size, raw)))
            put, shed, rows = put + count, shed + lost, rows + change
            greatest = max(greatest, size)
        assert queue.size <= max(BUDGET, greatest), "one that is greater than the budget enters an empty queue"
        assert queue.size == sum(e.batch.size for e in queue.entries)
        assert queue.rows == rows == sum(len(e.batch) or 1 for e in queue.entries)
    seen += numbers(queue.take_all())
    assert seen == sorted(set(seen))
    assert len(seen) == put - shed
    assert (queue.rows, queue.size) == (0, 0)


INPUT = st.tuples(st.integers(1, 5), st.integers(1, 12), st.booleans())
"""Messages, bytes of each, whether they are owed an acknowledgement."""


@given(
    st.lists(st.one_of(INPUT, INPUT, st.integers(1, 7)), max_size=60),
    st.sampled_from(["shed-oldest", "shed-newest", "sample"]),
    st.integers(40, 200),
    st.integers(0, 3),
)
def test_what_an_acknowledgement_is_owed_for_is_never_shed(
    operations: Any, overload: Overload, most_owed: int, behind_decoder: int
) -> None:
    """It is among the newest `most_owed` bytes at QoS 1: whoever feeds the queue stops when so many are. Nor is what
    came back to be taken again."""
    queue = SourceQueue(BUDGET, overload, most_owed)
    for n in range(behind_decoder):
        queue.put_protected(Entry(1, Batch([{"n": -1 - n}], 0.0, size=70)))
    came: list[tuple[int, int]] = []
    gone: set[int] = set()
    again: set[int] = set()
    """What has come back, until it is taken again."""
    shed = put = 0
    for operation in operations:
        if isinstance(operation, int):
            entries = queue.take(operation) if queue.entries else []
            back = entries[len(entries) // 2 :]
            queue.put_back(back)
            again = again - set(numbers(entries)) | set(numbers(back))
            gone |= {n for n in numbers(entries) if n >= 0} - {n for n in numbers(back) if n >= 0}
            continue
        rows, size, owed = operation
        came += [(n, size) for n in range(put, put + rows) if owed]
        shed += queue.put(Entry(0, batch(put, rows, rows * size, True, owed)))[1]
        put += rows
        left = set(numbers(queue.entries)) | gone
        behind = 0
        for number, its_size in reversed(came):
            behind += its_size
            assert number in left or behind > most_owed
        raw = [e.batch for e in queue.entries if isinstance(e.batch, RawBatch)]
        assert again <= left
        ahead = sum(e.batch.size for e in queue.entries if set(numbers([e])) <= again)
        assert sum(b.size for b in raw) <= BUDGET + most_owed + 60 + ahead
        assert sum(b.size for b in raw if not b.owed) <= BUDGET + ahead
        assert queue.owed_bytes == sum(b.size for b in raw if b.owed)
        assert queue.size == sum(e.batch.size for e in queue.entries)
        assert queue.rows == sum(len(e.batch) for e in queue.entries)
    seen = [n for n in numbers(queue.entries) if n >= 0]
    assert seen == sorted(set(seen))
    assert len({*seen, *gone}) == put - shed


def test_with_shed_newest_the_oldest_stay_and_so_does_what_is_owed() -> None:
    queue = SourceQueue(200, "shed-newest", 100)
    for n in range(100):
        queue.put(Entry(0, batch(n, 1, 10, True, owed=True)))
    assert numbers(queue.entries)[:9] == list(range(9))
    assert numbers(queue.entries)[-10:] == list(range(90, 100))
    assert queue.size <= 200


def test_what_nobody_is_owed_for_makes_room_for_what_is_and_not_the_other_way_round() -> None:
    for overload, left in (("shed-oldest", [0, 2, 3]), ("shed-newest", [0, 1, 3])):
        queue = SourceQueue(100, overload)  # type: ignore[arg-type]
        for n in range(3):
            queue.put(Entry(0, batch(n, 1, 30, True, owed=n == 0)))
        assert queue.put(Entry(0, batch(3, 1, 30, True, owed=True)))[1] == 1
        assert numbers(queue.entries) == left
        assert queue.put(Entry(0, batch(4, 1, 80, True))) == ((0, 1) if overload == "shed-newest" else (-1, 2))


def test_the_oldest_or_the_newest_goes_as_the_flow_chose() -> None:
    for overload, left, shed in (("shed-oldest", [2, 3, 4, 5], 2), ("shed-newest", [0, 1, 2, 3], 2)):
        queue = SourceQueue(BUDGET, overload)  # type: ignore[arg-type]
        results = [queue.put(Entry(0, batch(2 * n, 2, 50))) for n in range(3)]
        assert (results[-1][1], numbers(queue.entries)) == (shed, left)


def test_a_sample_stands_for_all_the_time_that_it_came_from() -> None:
    queue = SourceQueue(100, "sample")
    shed = sum(queue.put(Entry(0, batch(n, 1, 10, True)))[1] for n in range(11))
    assert (shed, numbers(queue.entries)) == (6, [1, 3, 5, 7, 9])
    shed += sum(queue.put(Entry(0, batch(n, 2, 20, True)))[1] for n in range(11, 17, 2))
    assert (shed, numbers(queue.entries)) == (12, [3, 7, 11, 13, 15])


def test_a_sample_leaves_what_an_acknowledgement_is_owed_for() -> None:
    queue = SourceQueue(100, "sample")
    for n in range(12):
        queue.put(Entry(0, batch(n, 1, 10, True, owed=n % 3 == 0)))
    assert [n for n in numbers(queue.entries) if n % 3 == 0] == [0, 3, 6, 9]
    assert (queue.size, queue.owed_bytes) == (10 * queue.rows, 40)


@pytest.mark.parametrize("overload", ["shed-oldest", "shed-newest", "sample"])
def test_a_batch_greater_than_the_budget_enters_an_empty_queue_and_a_watermark_does_not_drive_it_out(
    overload: Overload,
) -> None:
    queue = SourceQueue(BUDGET, overload)
    assert queue.put(Entry(0, batch(0, 3, 500))) == (3, 0)
    assert queue.put(Entry(0, Batch([], 0.0, 9.0))) == (1, 0)
    assert numbers(queue.entries) == [0, 1, 2]


def test_only_the_last_part_of_a_cut_batch_promises_anything() -> None:
    queue = SourceQueue(BUDGET)
    queue.put(Entry(3, Batch([{"n": n} for n in range(5)], 1.0, 77.0, 50)))
    parts = [*queue.take(2), *queue.take(5)]
    assert (queue.rows, queue.size, len(queue.entries)) == (0, 0, 0)
    found = [(e.source, e.batch.watermark, len(e.batch), e.batch.size) for e in parts]  # type: ignore[union-attr]
    assert found == [(3, NO_WATERMARK, 2, 20), (3, 77.0, 3, 30)]


@pytest.mark.parametrize("owed", [False, True])
def test_what_came_back_stands_before_the_rest_of_the_batch_that_it_was_taken_from(owed: bool) -> None:
    queue = SourceQueue(1_000)
    queue.put(Entry(3, batch(0, 8, 82, True, owed)))
    queue.put(Entry(3, batch(8, 2, 20, True, owed)))
    taken = [*queue.take(3), *queue.take(3)]
    assert (numbers(taken), numbers(queue.entries), queue.rows) == ([*range(6)], [6, 7, 8, 9], 4)
    assert queue.put_back(taken[1:]) == 3
    assert (numbers(queue.entries), queue.protected) == ([*range(3, 10)], 1)
    assert queue.size == sum(entry.batch.size for entry in queue.entries) == 102 - taken[0].batch.size
    assert queue.owed_bytes == (queue.size if owed else 0)


def test_a_very_long_batch_is_taken_in_order_by_turns_of_any_length() -> None:
    queue = InnerQueue(1 << 30)
    queue.append(Entry(0, Batch([{"n": n} for n in range(100_000)], 0.0, 9.0, 1_000_003)))
    seen: list[Any] = []
    size, limit = queue.size, 1
    while queue.rows:
        taken = [entry.batch for entry in queue.take(limit)]
        assert 0 < sum(map(len, taken)) <= limit
        seen += [row["n"] for batch in taken if isinstance(batch, Batch) for row in batch.rows]
        size -= sum(batch.size for batch in taken)
        assert (queue.rows, queue.size) == (100_000 - len(seen), size)
        limit = 1 + len(seen) % 150
    assert seen == list(range(100_000))
    assert not queue.size


def test_taking_from_an_empty_queue_is_an_error_and_taking_all_of_it_is_not() -> None:
    queue = SourceQueue(BUDGET)
    with pytest.raises(IndexError, match="got an empty queue"):
        queue.take(5)
    assert queue.take_all() == []


def test_what_was_accepted_before_enters_past_the_budget() -> None:
    queue = SourceQueue(BUDGET)
    for n in range(3):
        queue.append(Entry(0, batch(n, 1, 80)))
    assert (numbers(queue.entries), queue.size, queue.rows) == ([0, 1, 2], 240, 3)


def test_rows_that_a_checkpoint_found_behind_the_decoder_are_not_shed_for_new_input() -> None:
    queue = SourceQueue(100, "shed-oldest")
    queue.put_protected(Entry(1, Batch([{"n": 1}], 0.0, size=80)))
    raw = RawBatch(["t"], [b"x"], 0.0, 0.0, 60)
    assert queue.put(Entry(0, raw)) == (1, 0)
    assert [type(entry.batch) for entry in queue.entries] == [Batch, RawBatch]
    queue.take_all()
    queue.append(Entry(0, raw))
    assert queue.put(Entry(0, raw)) == (0, 1), "input makes room for newer input"


@pytest.mark.parametrize("overload", ["shed-oldest", "shed-newest"])
def test_rows_that_came_back_to_be_tried_again_drive_no_input_out(overload: Overload) -> None:
    queue = SourceQueue(100, overload)
    taken = [Entry(1, Batch([{"n": 1}], 0.0, size=80)), Entry(1, Batch([], 0.0, 5.0))]
    queue.append(Entry(0, RawBatch(["t"], [b"1"], 0.0, 0.0, 60)))
    assert queue.put_back(taken) == 2
    assert [entry.source for entry in queue.entries] == [1, 1, 0]
    assert queue.put(Entry(0, RawBatch(["t"], [b"2"], 0.0, 0.0, 40))) == (1, 0)
    assert (queue.rows, queue.size) == (4, 180)
    assert queue.put(Entry(0, RawBatch(["t"], [b"3"], 0.0, 0.0, 10)))[1] == 1
    assert numbers(queue.entries) == ([1, 2, 3] if overload == "shed-oldest" else [1, 1, 2])


def inside(overload: Overload) -> Queue:
    """Behind the decoder, 100 bytes, and its instance hangs."""
    queue = InnerQueue(100, overload)
    queue.shedding = True
    return queue


def marked(source: int, number: int, watermark: float, producer: int = 0) -> Entry:
    return Entry(source, Batch([{"n": number}], 0.0, watermark, 10), 0.0, producer)


def seen_by(queue: Queue) -> list[tuple[int, list[int], float]]:
    entries = ((e.source, e.batch) for e in queue.take_all())
    return [(source, [row["n"] for row in b.rows], b.watermark) for source, b in entries if isinstance(b, Batch)]


def test_behind_the_decoder_the_oldest_go_and_leave_their_watermarks() -> None:
    """Input 1 has spoken once, before all that is still there: what it promised must not be lost."""
    queue = inside("sample")
    change, shed = 0, 0
    for entry in [marked(1, 0, 5.0), *(marked(0, n, float(n)) for n in range(1, 31))]:
        more, gone = queue.put(entry)
        change, shed = change + more, shed + gone
    assert (change, shed, queue.size) == (queue.rows, 21, 100)
    assert seen_by(queue) == [(1, [], 5.0), (0, [], 20.0), *((0, [n], float(n)) for n in range(21, 31))]


def test_behind_the_decoder_the_newest_go_and_leave_their_watermarks() -> None:
    queue = inside("shed-newest")
    change, shed = 0, 0
    for entry in [*(marked(0, n, float(n)) for n in range(30)), marked(1, 30, 7.0), marked(0, 31, 31.0)]:
        more, gone = queue.put(entry)
        change, shed = change + more, shed + gone
    assert (change, shed, queue.size) == (queue.rows, 22, 100)
    assert seen_by(queue) == [*((0, [n], float(n)) for n in range(10)), (0, [], 31.0), (1, [], 7.0)]


def test_watermarks_in_front_of_one_that_does_not_run_take_no_more_and_more_memory() -> None:
    queue = InnerQueue(100)
    queue.put(marked(0, 1, 1.0))
    for n in range(2, 10_000):
        for source, producer in ((0, 0), (0, 1), (1, 0)):
            queue.put(Entry(source, Batch([], 0.0, float(n)), float(n), producer))
    assert (len(queue.entries), queue.rows) == (4, 4)
    assert [(e.source, e.producer) for e in queue.entries] == [(0, 0), (0, 0), (0, 1), (1, 0)]
    assert [e.put for e in queue.entries] == [0.0, 2.0, 2.0, 2.0]
    assert [watermark for _, _, watermark in seen_by(queue)] == [1.0, 9_999.0, 9_999.0, 9_999.0]


@pytest.mark.parametrize("overload", ["shed-oldest", "sample"])
def test_what_came_back_to_be_tried_again_is_not_shed_and_drives_nothing_out(overload: Overload) -> None:
    queue = inside(overload)
    queue.put_back([marked(0, 0, NO_WATERMARK), marked(0, 1, 1.0)])
    for n in range(2, 40):
        queue.put(marked(0, n, float(n)))
    assert queue.size == 120
    assert seen_by(queue) == [
        (0, [0], NO_WATERMARK), (0, [1], 1.0), (0, [], 29.0), *((0, [n], float(n)) for n in range(30, 40)),
    ]  # fmt: skip
    for n in range(20):
        queue.put(marked(0, n, float(n)))
    assert next(iter(seen_by(queue)))[1] == [], "what was taken is as any other"


def test_with_shed_newest_what_came_back_takes_no_room_of_what_comes() -> None:
    queue = inside("shed-newest")
    queue.put_back([marked(1, n, NO_WATERMARK) for n in range(20)])
    assert [queue.put(marked(0, n, float(n)))[1] for n in range(20, 32)] == [0] * 10 + [1] * 2
    assert [rows for _, rows, _ in seen_by(queue)] == [*([n] for n in range(30)), []]


@pytest.mark.parametrize("overload", ["shed-oldest", "shed-newest", "sample"])
@pytest.mark.parametrize("raw", [False, True])
def test_of_what_came_back_the_rest_stays_when_a_part_of_it_is_taken(overload: Overload, raw: bool) -> None:
    """Of two batches, the first cut for that."""
    queue = SourceQueue(100, overload) if raw else inside(overload)
    queue.put_back([Entry(1, batch(0, 4, 40, raw)), Entry(1, batch(4, 2, 20, raw))])
    assert numbers(queue.take(3)) == [0, 1, 2]
    shed = sum(queue.put(Entry(0, batch(n, 1, 10, raw)))[1] for n in range(6, 40))
    left = numbers(queue.entries)
    assert left[:3] == [3, 4, 5]
    assert len(left) - 3 == 34 - shed
    assert queue.size <= 130
    queue.take(3)
    queue.put(Entry(0, batch(40, 1, 10, raw)))
    assert queue.size <= 100


def test_what_was_restored_behind_the_first_part_stands_before_what_waited_for_that_and_stays() -> None:
    queue = inside("shed-oldest")
    queue.put_protected(marked(2, 0, NO_WATERMARK))
    queue.append(marked(0, 2, NO_WATERMARK))
    queue.put_protected(marked(1, 1, NO_WATERMARK))
    shed = sum(queue.put(marked(0, n, NO_WATERMARK))[1] for n in range(3, 30))
    assert (shed, queue.size) == (18, 120)
    assert [rows for _, rows, _ in seen_by(queue)] == [[0], [1], [], *([n] for n in range(20, 30))]
