"""The register of readers: who reads what, how far, and who is not waited for any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgert.central.tables.readers import Reach, Readers, Reading
from edgert.cli.main import main
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError
from tests.central.results_examples import FLOW
from tests.central.upkeep_examples import Site


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def readers(tmp_path: Path, clock: VirtualClock) -> Readers:
    return Readers(str(tmp_path), clock.wall)


def test_each_reader_says_how_far_it_is(readers: Readers, clock: VirtualClock) -> None:
    readers.begin("job", "landing/a")
    clock.advance(10)
    assert readers.tell("job", {"landing/a": Reach(3, 5), "landing/b": Reach(1, 1)}) == set()
    readers.tell("o'hara", {"landing/a": Reach(9, 9)})
    at = clock.wall()
    assert readers.all() == [
        Reading("job", "landing/a", Reach(3, 5), at),
        Reading("job", "landing/b", Reach(1, 1), at),
        Reading("o'hara", "landing/a", Reach(9, 9), at),
    ]
    assert readers.remove("o'hara") == 1
    assert {r.reader for r in readers.all()} == {"job"}
    with pytest.raises(EdgertError, match="expected one of those registered: job"):
        readers.remove("nobody")


def test_one_that_was_left_behind_learns_it_and_begins_anew(readers: Readers) -> None:
    readers.tell("job", {"landing/a": Reach(3, 5), "landing/b": Reach(1, 1)})
    gone = [r for r in readers.all() if r.table == "landing/a"]
    assert [r.left for r in readers.leave(gone)] == [False]
    assert readers.tell("job", {"landing/a": Reach(7, 7), "landing/b": Reach(2, 2)}) == {"landing/a"}
    assert [(r.reach, r.left) for r in readers.all()] == [(Reach(3, 5), True), (Reach(2, 2), False)]
    readers.begin("job", "landing/a")
    assert readers.tell("job", {"landing/a": Reach(8, 8)}) == set()


def test_one_that_came_back_meanwhile_is_not_left_behind(readers: Readers, clock: VirtualClock) -> None:
    readers.tell("job", {"landing/a": Reach(3, 5)})
    gone = readers.all()
    clock.advance(1)
    readers.tell("job", {"landing/a": Reach(4, 5)})
    assert readers.leave(gone) == []
    assert [r.left for r in readers.all()] == [False]


def test_of_two_that_write_at_the_same_time_none_is_lost(tmp_path: Path, clock: VirtualClock) -> None:
    one, two = Readers(str(tmp_path), clock.wall), Readers(str(tmp_path), clock.wall)
    one.tell("job", {"landing/a": Reach(1, 1)})
    two.all()
    raced = iter([True])

    def while_two_decides() -> float:
        if next(raced, False):
            one.tell("job", {"landing/b": Reach(2, 2)})
        return clock.wall()

    two._wall = while_two_decides
    two.tell("job", {"landing/c": Reach(3, 3)})
    assert [r.table for r in two.all()] == ["landing/a", "landing/b", "landing/c"]


def test_readers_of_others_are_registered_listed_and_removed_by_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path)
    site.ship(3)
    command = ["central", "readers", "--root", str(tmp_path)]
    assert main([*command, "--register", "dash", "--table", FLOW, "--version", "2"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1].split()[:4] == ["dash", f"landing/{FLOW}", "2", "2"]
    assert told[-1].endswith("reading")
    assert main([*command, "--register", "dash", "--table", FLOW, "--version", "99"]) == 1
    assert "has version 99" in capsys.readouterr().err
    assert main([*command, "--register", "dash"]) == 1
    assert "expected --table" in capsys.readouterr().err
    assert main([*command, "--table", FLOW, "--version", "2"]) == 1
    assert "expected --register READER beside them" in capsys.readouterr().err
    assert main([*command, "--remove", "dash"]) == 0
    assert "dash" not in capsys.readouterr().out
    assert main([*command, "--remove", "dash"]) == 1
    assert "registered: none" in capsys.readouterr().err
