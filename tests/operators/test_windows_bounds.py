"""Bounds of `tumbling_window`: groups that fit, keys of any length, and the work per turn."""

from __future__ import annotations

import time

import pytest

from edgert.core.packing import pack, unpack
from edgert.operators.state.aggregate_calls import Aggregate
from edgert.operators.state.bounded_keys import KEY_BYTES, SLOT_BYTES
from edgert.operators.state.groups import WINDOW_BYTES
from edgert.operators.windows import RESULT, TumblingWindow
from tests.operators.bounds import limit
from tests.operators.windows_world import AGGREGATES, NOW, SIZE, at, row, rows_at, window


def test_long_keys_leave_room_for_fewer_groups_restored_ones_too() -> None:
    """Of 50 kB each twenty are kept in 1 MB, of which those that may still be corrected are part."""
    keys = (("source", "string"), ("room", "string"))
    made, again = (window(keys=keys, lateness_s=100.0) for _ in range(2))
    limit(1_000_000, made, again)
    for number in range(18):
        batch = at(11.0, row(1.0 if number < 10 else 12.0, source=f"{number:02d}" + "a" * 50_000, room="r"))
        assert not rows_at(made.process(batch, 0, NOW), RESULT) or number < 10
    assert (len(made.emitted[0.0]), len(made.windows[1.0]), made.drops) == (10, 8, {})
    again.restore(unpack(pack(made.snapshot())))
    for each in (made, again):
        each.process(at(11.0, row(13.0), row(13.0, room="r")), 0, NOW)
        assert not each.drops, "short ones have room"
        each.process(at(11.0, *(row(13.0, source=s, room="r" * 50_000) for s in "abc")), 0, NOW)
        assert (list(each.emitted), len(each.windows[1.0])) == ([], 13)
        assert each.drops == {"window ended early (groups)": 10}


@pytest.mark.parametrize("variances", [0, 20])
def test_more_aggregates_and_windows_leave_room_for_fewer_groups(variances: int) -> None:
    made = window((AGGREGATES[0], *(Aggregate(f"v{n}", "variance", f"f{n}") for n in range(variances))))
    limit(1_000_000, made)
    made.process(at(0.0, *(row(SIZE * n) for n in range(5_000))), 0, NOW)
    kept = 1_000_000 // (WINDOW_BYTES + KEY_BYTES + SLOT_BYTES * (2 + 4 * variances))
    assert list(made.windows) == list(range(5_000 - kept, 5_000))
    assert made.drops == {"window ended early (groups)": 5_000 - kept}


def test_a_turn_costs_no_more_where_one_device_has_sent_50_000_times_in_the_future() -> None:
    """Each of them opens a window that stays open. A look at all in each turn costs a thousand times as much."""

    def best_turn_s(made: TumblingWindow) -> float:
        tries = []
        for second in range(200):
            begun = time.perf_counter()
            made.process(at(float(second), row(float(second), 1.0)), 0, NOW)
            tries.append(time.perf_counter() - begun)
        return sorted(tries)[len(tries) // 4]

    few, many = window(), window()
    many.process(at(0.0, *(row(1e6 + 10.0 * n, 1.0) for n in range(50_000))), 0, NOW)
    assert len(many.windows) == 50_000
    assert best_turn_s(many) < 30 * best_turn_s(few)
