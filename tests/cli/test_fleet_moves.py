"""What `edgert fleet moves | drain | fill` print."""

from __future__ import annotations

from typing import Any

from edgert.cli._control import WIDTH
from edgert.cli.fleet.flows import flow_lines
from edgert.cli.fleet.moves import _line, lines, told


def test_a_move_has_its_reason_and_its_pause() -> None:
    move = {
        "at": 0.0,
        "from": "g2",
        "flow": "f",
        "by": "board",
        "to": "g1",
        "reason": "f/window moves to g1",
        "pause_s": 0.14,
    }
    assert _line(move).endswith("g2: f/window moves to g1; its flow stood still for 140 ms")
    more = {**move, "rows_delayed": 1_200, "ahead_bytes": 812_345, "paused_bytes": 9_600}
    assert _line(more).endswith(
        "its flow stood still for 140 ms while 1,200 rows waited; 812 kB of state were sent before that, 10 kB in it"
    )


def note(to: str | None, reason: str) -> dict[str, Any]:
    """As the board that offered an instance notes it."""
    instance = "city-air/window"
    return {"at": 0.0, "from": "g2", "flow": "city-air", "instance": instance, "to": to, "by": "board",
            "reason": f"window {reason}"}  # fmt: skip


def test_a_refused_move_says_why_once() -> None:
    """It said "city-air/window stays: window stays: add capacity"."""
    assert _line(note(None, "stays: no other board takes it")).endswith(
        "g2: city-air/window stays: no other board takes it"
    )


def test_a_move_of_which_the_end_is_not_known_is_told_as_that() -> None:
    """It raised `KeyError`, for want of a pause."""
    assert _line(note("g1", "is moved to g1, perhaps later: g3 does not answer")).endswith(
        "g2: city-air/window is moved to g1, perhaps later: g3 does not answer"
    )


def test_moves_fit_a_terminal_and_boards_that_do_not_answer_are_named() -> None:
    """They were 190 columns wide; and of a fleet whose other boards were away the answer was "no moves"."""
    why = "stays: no other board takes it: " + "g1 needed up to 81% of its room in the last half hour; " * 4
    assert max(map(len, told({"moves": [note(None, why)], "silent": list("abc")}))) <= WIDTH
    assert told({"moves": [], "silent": ["g1", "g3"]}) == [
        "no moves", "not asked, as they do not answer: g1, g3"
    ]  # fmt: skip
    assert told({"moves": [], "silent": []}) == ["no moves"]


def test_flows_fit_a_terminal() -> None:
    """They were 132 columns wide."""
    on = {f"operator-{n}": f"greenhouse-{n % 3}" for n in range(40)}
    boards = {f"greenhouse-{n}": state for n, state in enumerate(("running", "stopped", "does not answer"))}
    condition = {"level": "bad", "state": "stuck", "text": "flow air: a turn of operator window does not end " * 3}
    flow = {"plan": 3 << 16, "coordinator": "greenhouse-2", "boards": boards, "assignment": on,
            "conditions": {"greenhouse-1": condition}}  # fmt: skip
    found = flow_lines({"city-air": flow, "city-noise": {**flow, "boards": {"greenhouse-0": "running"}}})
    assert max(map(len, found)) <= WIDTH
    assert found[0].split() == ["flow", "plan", "coordinator", "state"]
    assert sum("operator-7" in line for line in found) == 2


def test_a_drain_says_what_went_where_and_what_stays() -> None:
    found = {"board": "g2", "moved": {"a": {"window": "g1", "central": "g3"}}, "stays": {"b": "busy"}, "pause_s": 0.1}
    assert list(lines(found, "drain")) == [
        "g2 takes no operators until: edgert fleet fill g2",
        "flow a: window to g1, central to g3",
        "flow b stays: busy",
        "a flow stood still for at most 100 ms",
    ]


def test_a_fill_says_what_came_back() -> None:
    found = {"board": "g2", "moved": {"a": {"window": "g1"}}, "stays": {}, "pause_s": 0.1}
    assert list(lines(found, "fill"))[:2] == ["g2 takes operators again", "flow a: window to g2"]
