"""Flows that have something to say of drops with every other commit: numbers without rows stand between results."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgert.core.checkpoint.checkpoint import Checkpoint
from tests.protocol.memory_table import MemoryTable, Stored

if TYPE_CHECKING:
    from tests.protocol.board import Board

REASON = "bad_payload"


class Dropping:
    """Of a walk. Chance of its own, so that a seed means the same to all else."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(f"drops {seed}")
        self._said: Counter[str] = Counter()

    def watch(self, board: Board) -> None:
        """What its checkpoints write says so."""
        write = board._write

        def says(commits: Sequence[Checkpoint], *rest: Any) -> set[str]:
            for commit in commits:
                commit.drops = [("in", REASON, self._draw.randint(1, 9))] * self._draw.randint(0, 1)
            refused = write(commits, *rest)
            for commit in commits:
                if commit.flow not in refused:
                    self._said[commit.flow] += sum(count for *_, count in commit.drops)
            return refused

        board._write = says  # type: ignore[assignment]

    def check(self, strict: bool) -> None:
        """Each batch landed once; all of it, where nothing is lost."""
        rows = MemoryTable.store.get("root/drops", Stored()).rows
        numbers = Counter((row["flow"], row["epoch"], row["stream"], row["sequence"]) for row in rows)
        assert all(times == 1 for times in numbers.values()), "drops have landed twice"
        landed: Counter[str] = Counter()
        for row in rows:
            assert row["reason"] == REASON
            landed[row["flow"]] += row["count"]
        assert landed == self._said or not strict, f"{self._said} was said of drops, {landed} has landed"
