"""A run from seeds goes on where an earlier one was cut short, and its verdict counts all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgert.core.errors import EdgertError
from tests.lab import fleet_faults, fleet_moves
from tests.lab.fleet_moves import Moved
from tests.lab.seeds import Summary


def test_a_seed_that_a_run_before_had_is_known(tmp_path: Path) -> None:
    file = tmp_path / "moves.json"
    Summary(file).note({"seed": 7, "good": True, "moves": 3, "lost": 0})
    again = Summary(file)
    assert again.has(7)
    assert not again.has(8)
    again.note({"seed": 8, "good": False, "moves": 2, "lost": 1})
    assert Summary(file).totals() == {"seeds": 2, "bad": [8], "moves": 5, "lost": 1}


def test_the_verdict_has_each_figure_and_the_seeds_that_are_bad() -> None:
    summary = Summary(None)
    good = fleet_moves.Outcome(1, [Moved(0.0, {}, "none", "none", made=True)], sums_right=True, looks=9)
    cut = fleet_moves.Outcome(2, [Moved(0.0, {}, "cut from a to b", "cut")], cut_short="waited 180 s")
    for outcome in (good, cut):
        summary.note(outcome.plain())
    assert summary.verdict() == (
        "1 of 2 seeds good, bad: [2]; moves 2; made 1; messages 0; lost 0; doubled 0; out of order 0; keys wrong 0; "
        "amid {'cut': 1, 'none': 1}; two owners 0"
    )


def test_another_file_is_not_taken_for_a_summary(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("[]")
    with pytest.raises(EdgertError, match="expected the outcomes of an earlier run"):
        Summary(file)


def test_a_seed_that_was_not_carried_through_is_not_good() -> None:
    assert fleet_moves.Outcome(1, sums_right=True, looks=9).good
    assert not fleet_moves.Outcome(1, sums_right=True, looks=9, cut_short="waited 180 s").good


def test_a_seed_in_which_nobody_looked_for_two_owners_is_not_good() -> None:
    """It was."""
    for module in (fleet_faults, fleet_moves):
        assert not module.Outcome(1, sums_right=True).good
