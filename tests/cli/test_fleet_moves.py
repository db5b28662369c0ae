"""What `edgert fleet moves | drain | fill` print."""

from __future__ import annotations

from edgert.cli.fleet.moves import _line, lines


def test_a_move_has_its_reason_and_its_pause() -> None:
    move = {
        "at": 0.0,
        "from": "g2",
        "instance": "f/window",
        "to": "g1",
        "reason": "f/window moves to g1",
        "pause_s": 0.14,
    }
    assert _line(move).endswith("g2: f/window moves to g1; its flow stood still for 140 ms")
    more = {**move, "rows_delayed": 1_200, "ahead_bytes": 812_345, "paused_bytes": 9_600}
    assert _line(more).endswith(
        "its flow stood still for 140 ms while 1,200 rows waited; 812 kB of state were sent before that, 10 kB in it"
    )


def test_a_refused_move_says_why() -> None:
    move = {"at": 0.0, "from": "g2", "instance": "f/window", "to": None, "reason": "add capacity, or shed"}
    assert _line(move).endswith("g2: f/window stays: add capacity, or shed")


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
