import random
from collections import Counter
from sys import getsizeof
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.packing import pack, unpack
from edgert.core.text.long_text import SHORT
from edgert.operators.state.bounded_keys import KEY_BYTES, ByKey


def entry(value: int) -> tuple[int]:
    return (value,)


def test_the_oldest_key_is_forgotten_and_counted_and_the_next_delta_says_so_once() -> None:
    numbers: ByKey[int] = ByKey("numbers", 24)
    drops: Counter[str] = Counter()
    forgotten: list[int] = []
    for key, value in (("a", 1), ("b", 2), ("c", 3), ("a", 4)):
        numbers.kept[key] = value
        numbers.changed[key] = None
        if key == "b":
            assert numbers.delta(entry) == {"gone": [], "numbers": [["a", 1], ["b", 2]]}
        forgotten.extend(numbers.forget_beyond(drops, 2))
    assert forgotten == [1, 2]
    assert numbers.kept == {"c": 3, "a": 4}
    assert drops == {"too many keys (keys)": 2}
    assert numbers.delta(entry) == {"gone": ["a", "b"], "numbers": [["c", 3], ["a", 4]]}
    assert numbers.delta(entry) is None


def test_keys_that_come_and_go_between_two_deltas_leave_nothing_behind() -> None:
    numbers, stored = (ByKey[int]("numbers", 24, memory_bytes=100_000) for _ in range(2))

    def came(keys: range) -> None:
        for n in keys:
            key = f"{n}" + "x" * 10_000
            numbers.kept[key] = n
            numbers.changed[key] = None
            numbers.weighs(key)
            numbers.forget_beyond(Counter())

    for first in (0, 100):
        came(range(first, first + 100))
        assert len(numbers.gone) <= len(numbers._told) + len(numbers.gone) < 10
        state = numbers.delta(entry)
        assert state is not None
        assert len(state["gone"]) == (9 if first else 0), "those that the state before held, and no other"
        for key, value in stored.told(state):
            stored.kept[key] = value
        assert stored.kept == numbers.kept


def test_a_key_that_was_told_and_went_and_came_again_is_told_as_it_is_now() -> None:
    numbers, stored = (ByKey[int]("numbers", 24) for _ in range(2))
    for value, goes in ((1, False), (2, True), (3, True), (4, False)):
        numbers.kept["a"] = value
        numbers.changed["a"] = None
        if value == 1:
            assert numbers.delta(entry) == {"gone": [], "numbers": [["a", 1]]}
        if goes:
            numbers.forget("a")
    state = numbers.delta(entry)
    assert state == {"gone": ["a"], "numbers": [["a", 4]]}
    for key, value in stored.told(state):
        stored.kept[key] = value
    stored.forget("a")
    assert stored.delta(entry) == {"gone": ["a"], "numbers": []}, "what was restored was told"


@pytest.mark.parametrize("seed", range(20))
def test_deltas_tell_all_that_is_kept(seed: int) -> None:
    draw = random.Random(seed)
    numbers: ByKey[int] = ByKey("numbers", 24)
    stored: ByKey[int] = ByKey("numbers", 24)
    most = draw.randint(1, 6)
    for value in range(400):
        key = draw.randrange(12)
        numbers.kept[key] = value
        numbers.changed[key] = None
        numbers.forget_beyond(Counter(), most)
        if draw.random() < 0.1:
            state = numbers.delta(entry)
            for told, kept in stored.told(state) if state else ():
                stored.kept[told] = kept
            assert stored.kept == numbers.kept
        if draw.random() < 0.01:  # a restart, from what was stored last
            numbers = ByKey("numbers", 24)
            for key, kept in numbers.told({"gone": [], "numbers": list(stored.kept.items())}):
                numbers.kept[key] = kept


def test_what_is_told_comes_back_with_keys_of_several_fields() -> None:
    numbers: ByKey[int] = ByKey("numbers", 24)
    numbers.kept |= {("a", 1): 1, ("b", 2): 2}
    again: ByKey[int] = ByKey("numbers", 24)
    again.kept[("old", 0)] = 0
    snapshot = numbers.snapshot(entry)
    assert snapshot is not None
    assert list(again.told(unpack(pack(snapshot | {"gone": [("old", 0)]})))) == [(("a", 1), 1), (("b", 2), 2)]
    assert again.kept == {}


def test_nothing_has_no_snapshot() -> None:
    assert ByKey("numbers", 24).snapshot(entry) is None


def held_bytes(kept: dict[Any, int], heavy: dict[Any, int]) -> int:
    texts = [text for key in kept for text in (key if isinstance(key, tuple) else (key,)) if isinstance(text, str)]
    long = sum(getsizeof(text) for text in texts if len(text) > SHORT)
    return len(kept) * (KEY_BYTES + 24) + long + sum(heavy.get(key, 0) for key in kept)


KEYS = st.builds(lambda n, long: f"{n}" * long, st.integers(0, 30), st.sampled_from([1, 40, 700, 5_000]))
STEPS = st.lists(
    st.tuples(KEYS | st.tuples(KEYS, st.integers(0, 3)), st.sampled_from([0, 0, 0, 900, 9_000]), st.booleans())
)


@given(st.lists(STEPS, max_size=12))
def test_after_each_batch_all_keys_are_within_the_memory_however_long_they_are(batches: list[Any]) -> None:
    memory_bytes = 20_000
    numbers: ByKey[int] = ByKey("numbers", 24, memory_bytes=memory_bytes)
    drops: Counter[str] = Counter()
    heavy: dict[Any, int] = {}
    came = gone = 0
    for steps in batches:
        for key, beyond_bytes, goes in steps:
            if goes and key in numbers.kept:  # as a window that is full
                numbers.forget(key)
                heavy.pop(key, None)
                gone += 1
                continue
            came += key not in numbers.kept
            numbers.kept[key] = 1
            numbers.weighs(key, beyond_bytes)
            heavy[key] = beyond_bytes
        before = dict(numbers.kept)
        numbers.forget_beyond(drops)
        assert held_bytes(numbers.kept, heavy) <= memory_bytes or len(numbers.kept) == 1
        assert list(numbers.kept) == list(before)[len(before) - len(numbers.kept) :], "the newest are kept"
        assert came == len(numbers.kept) + gone + drops["too many keys (keys)"]


def test_long_keys_do_not_make_others_go_that_have_room() -> None:
    numbers: ByKey[int] = ByKey("numbers", 24, memory_bytes=1_000_000)
    for n in range(2_000):
        key = "x" * 60_000 + str(n) if n % 100 == 0 else n
        numbers.kept[key] = n
        numbers.weighs(key)
        numbers.forget_beyond(Counter())
    assert 900 < len(numbers.kept) < 1_500, "some 700 kB are for twelve long ones"


def test_a_restart_keeps_the_same_bound() -> None:
    numbers, again = (ByKey[int]("numbers", 24, memory_bytes=100_000) for _ in range(2))
    for n in range(20):
        numbers.kept["x" * 30_000 + str(n)] = n
        numbers.changed["x" * 30_000 + str(n)] = None
    told = numbers.delta(entry)
    for key, value in again.told(told):
        again.kept[key] = value
    again.forget_beyond(Counter())
    assert list(again.kept.values()) == [17, 18, 19]
    for key in list(again.kept):
        assert not list(again.told({"gone": [key], "numbers": []}))
    for n in range(200):
        again.kept[n] = n
        again.weighs(n)
    again.forget_beyond(Counter())
    assert len(again.kept) == 200, "long keys that are told to be gone no longer take anything"


def test_many_that_are_too_many_cost_no_more_each_than_few_do() -> None:
    """A dict passes what was deleted from its front to find what is first, so it must not be asked for each key."""
    most = 10_000
    numbers: ByKey[int] = ByKey("numbers", 24, most_keys=most)
    drops: Counter[str] = Counter()
    asked = 0
    for n in range(5 * most):
        numbers.kept[n] = n
        numbers.weighs(n)
        before = len(numbers.kept)
        numbers.forget_beyond(drops)
        asked += len(numbers.kept) < before
        assert min(n, most * 0.98) < len(numbers.kept) <= most
    assert asked < 500
    assert list(numbers.kept) == list(range(5 * most - len(numbers.kept), 5 * most)), "the newest are kept"
    assert drops["too many keys (keys)"] == 5 * most - len(numbers.kept)
