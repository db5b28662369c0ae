from collections import Counter

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
