"""What a daemon keeps of a flow in slots, against a plain list of all that was fed."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from edgert.core.batch import RawBatch
from edgert.core.checkpoint.position import Position
from edgert.runtime.checkpoint.progress import Progress
from gateway.hosts.slotted_flow import SlottedFlow


def hosted_of() -> SlottedFlow:
    run: Any = SimpleNamespace(pending=[], taken=[], stages={}, rewrite=False, progress=Progress(Position()))
    return SlottedFlow(run, [0])


def raw(number: int, size: int, owed: bool) -> RawBatch:
    return RawBatch(["x"], [b"%d" % number], 0.0, 0.0, size, owed)


def numbers(entries: Any) -> list[int]:
    return [int(fed.batch.payloads[0]) for fed in entries if fed.batch is not None]


def lost_in(entries: Any) -> int:
    return sum(fed.lost.total() for fed in entries if fed.lost)


@pytest.mark.parametrize("seed", range(200))
def test_what_is_not_kept_is_counted_and_what_a_commit_covers_is_forgotten(seed: int) -> None:
    draw = random.Random(seed)
    hosted = hosted_of()
    hosted.most_kept_bytes = 100
    whose: dict[int, str] = {}
    """Of which of two sources each was."""
    since: list[tuple[int, bool]] = []
    """(number, owed) of all that was fed since the last commit."""
    marks: list[int] = []
    fed = 0
    for _ in range(300):
        kind = draw.random()
        if kind < 0.8:
            fed += 1
            owed = draw.random() < draw.choice([0.0, 0.1, 0.5])
            whose[fed] = draw.choice("ab")
            hosted.keep(whose[fed], 0, raw(fed, draw.randint(5, 30), owed))  # type: ignore[arg-type]
            since.append((fed, owed))
        elif kind < 0.88:
            hosted.mark()
            marks.append(fed)
        elif kind < 0.92 and marks:
            hosted.marks.pop()  # the capture came to nothing
            marks.pop()
        elif kind < 0.96:
            committed = draw.randint(0, len(marks))
            pending: list[Any] = marks[committed:]
            hosted.run.pending[:] = pending
            hosted.trim()
            since = [(n, owed) for n, owed in since if not committed or n > marks[committed - 1]]
            marks = marks[committed:]
        elif kind < 0.98:
            kept = numbers(hosted.fed)
            before = hosted.drops.copy()
            assert hosted.began_anew() == len(since) - len(kept)
            lost = Counter((whose[n], "lost with a slot") for n, _ in since if n not in kept)
            assert hosted.drops - before == lost, "each is counted as lost by the source that it was for"
            assert numbers(hosted.fed) == kept
            since = [(n, owed) for n, owed in since if n in kept]
            marks = []
        kept = numbers(hosted.fed)
        assert {n for n, owed in since if owed} <= set(kept) <= {n for n, _ in since}
        assert kept == sorted(kept)
        assert lost_in(hosted.fed) == len(since) - len(kept)
        assert hosted.kept_bytes == sum(f.batch.size for f in hosted.fed if f.batch and not f.batch.owed) <= 100
        if marks:
            after = hosted.since_mark()
            assert numbers(after) == [n for n in kept if n > marks[-1]]
            assert lost_in(after) == len([n for n, _ in since if n > marks[-1] and n not in kept])


def test_what_was_forgotten_takes_no_room_however_long_nothing_can_be_committed() -> None:
    hosted = hosted_of()
    hosted.most_kept_bytes = 100
    for number in range(10_000):
        hosted.keep("ab"[number % 2], 0, raw(number, 10, owed=False))  # type: ignore[arg-type]
        if number == 5_000:
            hosted.mark()
    assert len(hosted.fed) <= 2 + 10
    assert hosted.began_anew() == 10_000 - len(hosted.fed)
