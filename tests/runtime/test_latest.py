"""The results of the newest window."""

from __future__ import annotations

from edgert.core.batch import Row
from edgert.runtime.latest import MOST_BYTES, MOST_ROWS, LatestWindow


def row(window: float, room: str, n: int) -> Row:
    return {"time": window, "window_start": window, "room": room, "n": n}


def test_all_keys_of_the_newest_window_are_there_each_once() -> None:
    latest = LatestWindow(["room"])
    latest.add([row(0.0, "a", 1), row(10.0, "a", 2), row(10.0, "b", 3), row(0.0, "c", 4)])
    latest.add([row(10.0, "a", 5)])
    assert [(r["room"], r["n"]) for r in latest.rows] == [("a", 5), ("b", 3)]
    latest.add([row(20.0, "z", 6)])
    assert [r["room"] for r in latest.rows] == ["z"]


def test_more_rows_than_are_kept_are_counted() -> None:
    latest = LatestWindow(["room"])
    latest.add([row(0.0, str(n), n) for n in range(MOST_ROWS + 7)])
    assert (len(latest), latest.beyond) == (MOST_ROWS, 7)


def test_rows_with_long_keys_are_bounded_in_bytes() -> None:
    latest = LatestWindow(["room"])
    latest.add([row(0.0, f"{n:04d}" + "r" * 60_000, n) for n in range(1_000)])
    assert 100 < len(latest) <= MOST_BYTES // 120_000
    assert len(latest) + latest.beyond == 1_000
    for _ in range(2):  # one that is replaced takes no more room
        latest.add([row(0.0, "0000" + "r" * 60_000, -1), row(0.0, "a", 2)])
    assert (latest.rows[0]["n"], latest.rows[-1]["n"]) == (-1, 2)
    latest.add([row(0.0, "a", 2) | {"more": "m" * (16 << 20)}])
    assert "more" not in latest.rows[-1]
    latest.add([row(10.0, "b" * 60_000, 3)])
    assert (len(latest), latest.beyond) == (1, 0)


def test_a_key_of_some_thousands_is_replaced_where_it_stands() -> None:
    latest = LatestWindow(["room"])
    latest.add([row(0.0, str(n), n) for n in range(5000)])
    latest.add([row(0.0, "4321", -1)])
    assert (len(latest), latest.beyond) == (5000, 0)
    assert [r["n"] for r in latest.rows[4320:4323]] == [4320, -1, 4322]
