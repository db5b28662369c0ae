import random
from collections import Counter

import pytest

from edgert.core.packing import pack, unpack
from edgert.operators.by_key import ByKey


def entry(value: int) -> tuple[int]:
    return (value,)


def test_the_oldest_key_is_forgotten_and_counted_and_the_next_delta_says_so_once() -> None:
    numbers: ByKey[int] = ByKey("numbers")
    drops: Counter[str] = Counter()
    forgotten: list[int] = []
    for key, value in (("a", 1), ("b", 2), ("c", 3), ("a", 4)):
        numbers.kept[key] = value
        numbers.changed[key] = None
        forgotten.extend(numbers.forget_beyond(2, drops))
    assert forgotten == [1, 2]
    assert numbers.kept == {"c": 3, "a": 4}
    assert drops == {"too many keys (keys)": 2}
    assert numbers.delta(entry) == {"gone": ["a", "b"], "numbers": [["c", 3], ["a", 4]]}
    assert numbers.delta(entry) is None


@pytest.mark.parametrize("seed", range(20))
def test_deltas_tell_all_that_is_kept(seed: int) -> None:
    draw = random.Random(seed)
    numbers: ByKey[int] = ByKey("numbers")
    stored: ByKey[int] = ByKey("numbers")
    most = draw.randint(1, 6)
    for value in range(400):
        key = draw.randrange(12)
        numbers.kept[key] = value
        numbers.changed[key] = None
        numbers.forget_beyond(most, Counter())
        if draw.random() < 0.1:
            state = numbers.delta(entry)
            for told, kept in stored.told(state) if state else ():
                stored.kept[told] = kept
            assert stored.kept == numbers.kept
        if draw.random() < 0.01:  # a restart, from what was stored last
            numbers = ByKey("numbers")
            for key, kept in numbers.told({"gone": [], "numbers": list(stored.kept.items())}):
                numbers.kept[key] = kept


def test_what_is_told_comes_back_with_keys_of_several_fields() -> None:
    numbers: ByKey[int] = ByKey("numbers")
    numbers.kept |= {("a", 1): 1, ("b", 2): 2}
    again: ByKey[int] = ByKey("numbers")
    again.kept[("old", 0)] = 0
    snapshot = numbers.snapshot(entry)
    assert snapshot is not None
    assert list(again.told(unpack(pack(snapshot | {"gone": [("old", 0)]})))) == [(("a", 1), 1), (("b", 2), 2)]
    assert again.kept == {}


def test_nothing_has_no_snapshot() -> None:
    assert ByKey("numbers").snapshot(entry) is None
