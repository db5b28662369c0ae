"""Waves of an update: how the boards are cut, and the state machine over all that boards may do."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.boards.board_state import DECIDED, UNDER_WAY, BoardState, UpdateProgress
from edgert.boards.waves import ASK_AGAIN_S, ASKED_MOST, SeenBoard, Waves, cut, waves_untrusted
from edgert.core.errors import EdgertError

URL = "http://h/x"
PERCENTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=6, unique=True).map(sorted)


def names(count: int) -> list[str]:
    return [f"g{number:03}" for number in range(count)]


def at(phase: str, request: str = "r", version: str = "1", url: str = URL, why: str = "") -> SeenBoard:
    return SeenBoard(
        True, BoardState("A", version, "", UpdateProgress(phase, "2", request, url, None, why)), taken=True
    )


FREE = SeenBoard(True, BoardState("A", "1"))


# -- cutting


@pytest.mark.parametrize(
    ("boards", "text", "sizes"),
    [
        (100, "5%,25%,100%", [5, 20, 75]),
        (100, "5,25,100", [5, 20, 75]),
        (7, "5%,25%,100%", [1, 1, 5]),
        (3, "5%,25%,100%", [1, 1, 1]),
        (1, "5%,25%,100%", [1]),
        (2, "1%,2%,3%", [1, 1]),
        (1000, "0.1%, 10%", [1, 99]),
        (10, "30%", [3]),
        (0, "100%", []),
        (50, "14%", [7]),
    ],
)
def test_waves(boards: int, text: str, sizes: list[int]) -> None:
    assert list(map(len, cut(names(boards), waves_untrusted(text)))) == sizes


@given(st.integers(0, 300).map(names), PERCENTS)
def test_waves_take_each_board_once_and_in_order(boards: list[str], percents: list[float]) -> None:
    waves = cut(boards, percents)
    together = [board for wave in waves for board in wave]
    assert together == boards[: len(together)]
    assert all(waves)
    assert len(waves) <= len(percents)
    assert len(together) >= min(len(boards), math.floor(len(boards) * percents[-1] / 100))
    if percents[-1] == 100:
        assert together == boards


@pytest.mark.parametrize(
    "text", ["", "5%,", "0%", "101%", "25%,5%", "5%,5%", "-5%", "5%;25%", "all", "nan", "1e1", "%"]
)
def test_percentages_that_are_none(text: str) -> None:
    with pytest.raises(EdgertError, match="rising percentages"):
        waves_untrusted(text)


# -- the state machine


def test_a_wave_waits_for_the_one_before() -> None:
    rollout = Waves([["a"], ["b"]], "r", URL)
    assert rollout.turn(0, {"a": FREE, "b": FREE}) == ["a"]
    for phase in UNDER_WAY:
        assert rollout.turn(1, {"a": at(phase), "b": FREE}) == []
    assert rollout.turn(2, {"a": at("confirmed"), "b": FREE}) == ["b"]
    assert rollout.turn(3, {"a": at("confirmed"), "b": at("confirmed")}) == []
    assert rollout.over
    assert rollout.good


@pytest.mark.parametrize("phase", ["refused", "failed", "rolled back"])
def test_no_wave_begins_after_one_with_too_many_failures(phase: str) -> None:
    rollout = Waves([["a", "b"], ["c"]], "r", URL)
    assert rollout.turn(0, {"a": FREE, "b": FREE}) == ["a", "b"]
    assert rollout.turn(1, {"a": at(phase, why="so"), "b": at("installing"), "c": FREE}) == []
    assert not rollout.over
    assert rollout.turn(2, {"a": at(phase, why="so"), "b": at("confirmed"), "c": FREE}) == []
    assert str(rollout.stopped) == "wave 1: 1 of 2 boards are not updated"
    assert {board: track.ended for board, track in rollout.tracks.items()} == {
        "a": phase,
        "b": "confirmed",
        "c": "left",
    }
    assert rollout.tracks["a"].why == "so"


def test_failures_within_the_allowed_number_do_not_stop_it() -> None:
    rollout = Waves([["a", "b"], ["c"]], "r", URL, max_failures=1)
    rollout.turn(0, {"a": FREE, "b": FREE})
    assert rollout.turn(1, {"a": at("failed"), "b": at("confirmed"), "c": FREE}) == ["c"]
    rollout.turn(2, {"c": at("confirmed")})
    assert rollout.over
    assert not rollout.stopped
    assert not rollout.good


def test_boards_that_run_the_version_are_not_asked() -> None:
    rollout = Waves([["a"], ["b"]], "r", URL, "2")
    done = SeenBoard(True, BoardState("B", "2", "", UpdateProgress("confirmed", "2", "earlier")))
    assert rollout.turn(0, {"a": done, "b": FREE}) == ["b"]
    assert rollout.tracks["a"].ended == "current"


def test_an_update_of_a_command_that_was_cut_off_is_waited_for() -> None:
    rollout = Waves([["a"]], "r", URL)
    assert rollout.turn(0, {"a": at("installing", "earlier")}) == []
    assert rollout.turn(100, {"a": at("on trial", "earlier")}) == []
    assert rollout.turn(200, {"a": at("confirmed", "earlier")}) == []
    assert rollout.good


def test_the_end_of_an_earlier_update_is_not_that_of_this_one() -> None:
    rollout = Waves([["a"]], "r", URL)
    assert rollout.turn(0, {"a": at("rolled back", "earlier")}) == ["a"]
    assert rollout.turn(1, {"a": at("rolled back", "earlier")}) == []
    assert rollout.tracks["a"].ended is None


def test_a_board_that_says_no() -> None:
    rollout = Waves([["a"]], "r", URL)
    rollout.turn(0, {"a": FREE})
    rollout.turn(1, {"a": SeenBoard(True, FREE.state, refusal="another update is under way")})
    assert (rollout.tracks["a"].ended, rollout.tracks["a"].why) == ("refused", "another update is under way")


def test_a_board_that_does_not_answer_is_asked_again_and_then_given_up() -> None:
    rollout = Waves([["a"]], "r", URL)
    asked = [at_s for at_s in range(100) if rollout.turn(at_s, {"a": FREE})]
    assert asked == [ASK_AGAIN_S * number for number in range(ASKED_MOST)]
    assert rollout.tracks["a"].ended == "no answer"


def test_a_board_that_took_the_request_and_is_not_heard_of_again_times_out() -> None:
    rollout = Waves([["a"]], "r", URL, timeout_s=600)
    rollout.turn(0, {"a": FREE})
    rollout.turn(10, {"a": at("installed")})
    rollout.turn(599, {"a": SeenBoard(False, at("installed").state)})
    assert not rollout.over
    rollout.turn(600, {"a": SeenBoard(False, at("installed").state)})
    assert rollout.tracks["a"].ended == "timed out"
    assert "the last: installed" in rollout.tracks["a"].why


def test_a_board_that_went_away_before_its_wave() -> None:
    rollout = Waves([["a"], ["b"]], "r", URL)
    rollout.turn(0, {"a": FREE, "b": FREE})
    rollout.turn(1, {"a": at("confirmed"), "b": SeenBoard(False, FREE.state)})
    assert rollout.tracks["b"].ended == "offline"
    assert rollout.over


SEEN = st.one_of(
    st.builds(SeenBoard, st.booleans(), st.none() | st.just(FREE.state), st.sampled_from(["", "no"]), st.booleans()),
    st.builds(at, st.sampled_from((*UNDER_WAY, *DECIDED)), st.sampled_from(["r", "other"]), st.sampled_from("12")),
)


@given(st.data())
def test_whatever_boards_do_a_wave_waits_stops_at_failures_and_ends(data: st.DataObject) -> None:
    boards = names(data.draw(st.integers(1, 8)))
    waves = cut(boards, [*data.draw(PERCENTS.filter(lambda found: found[-1] < 100)), 100.0])
    allowed = data.draw(st.integers(0, 2))
    rollout = Waves(waves, "r", URL, data.draw(st.sampled_from(["", "2"])), max_failures=allowed, timeout_s=100.0)
    asked: dict[str, int] = dict.fromkeys(boards, 0)
    at_s = 0.0
    for _ in range(data.draw(st.integers(1, 30))):
        at_s += data.draw(st.floats(0.0, 40.0))
        ask = rollout.turn(at_s, {board: data.draw(SEEN) for board in boards})
        for board in ask:
            asked[board] += 1
            number = next(number for number, wave in enumerate(waves) if board in wave)
            for earlier in waves[:number]:
                ends = [rollout.tracks[one] for one in earlier]
                assert all(track.ended for track in ends)
                assert sum(not track.good for track in ends) <= allowed
    while not rollout.over:  # no board tells anything any more
        at_s += 50.0
        rollout.turn(at_s, {board: SeenBoard(True, FREE.state, taken=True) for board in boards})
        assert at_s < 30 * 40.0 + 200.0 * (len(waves) + 1)
    assert all(track.ended for track in rollout.tracks.values())
    assert max(asked.values()) <= ASKED_MOST
    assert all(rollout.tracks[board].ended not in ("left", "offline") for board in boards if asked[board])
    left = [rollout.tracks[board].ended == "left" for board in boards]
    assert all(one <= other for one, other in pairwise(left))
