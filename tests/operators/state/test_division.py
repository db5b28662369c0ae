"""Rows to copies by key: the same on every machine, for all values that an operator takes for one key."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import Row
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.spec import ANY, Keys
from edgert.operators.base.fields import key_reader
from edgert.operators.sources.source import TopicCaptures
from edgert.operators.state.keys import AS_KEY
from edgert.operators.state.partitioning import KNOWN, Copies, CopiesByTopic, Divider

TEXTS = st.sampled_from(["1", "1.0", "True", "a", "ä\u0378"])
VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, -0.0, 1.0, 1.5]) | TEXTS
ROWS = st.lists(st.dictionaries(st.sampled_from(["a", "b"]), VALUES), max_size=20)


def rows_of(found: list[list[Row]]) -> list[Row]:
    return [row for part in found for row in part]


@given(ROWS, st.integers(2, 5), st.sampled_from(["string", "double", "long", "boolean", ANY]))
def test_rows_of_a_key_meet_in_one_copy_in_their_order(rows: list[Row], copies: int, kind: str) -> None:
    rows = [{**row, "n": n} for n, row in enumerate(rows)]
    found = Divider((("a", kind), ("b", kind)), copies).divide(rows)
    assert len(found) == copies
    assert sorted(rows_of(found), key=lambda row: row["n"]) == rows
    homes: dict[Any, int] = {}
    for number, part in enumerate(found):
        assert [row["n"] for row in part] == sorted(row["n"] for row in part)
        for row in part:
            key = key_as(kind, row)
            if key is not None:
                assert homes.setdefault(key, number) == number, key


def key_as(kind: str, row: Row) -> Any:
    """As an operator takes it; None if it can make no key of the row."""
    if kind == ANY:
        return key_reader(["a", "b"])(row)
    try:
        return tuple(None if row.get(name) is None else AS_KEY[kind](row[name]) for name in ("a", "b"))
    except (ValueError, TypeError, OverflowError):
        return None


@pytest.mark.parametrize("keys", [(("a", "string"),), (("a", ANY),), (("a", ANY), ("b", "long"))])
def test_the_copy_of_a_key_as_an_operator_keeps_it_is_that_of_its_rows(keys: Keys) -> None:
    divider = Divider(keys, 7)
    for value in ("x", "y", "z", "ä", ""):
        (home,) = [n for n, part in enumerate(divider.divide([{"a": value, "b": 4}])) if part]
        assert divider.copy_of((value, 4) if len(keys) > 1 else value) == home


def test_it_is_the_same_after_every_restart() -> None:
    """A checkpoint is divided by it: to change it, or to let it depend on the process, would part a key's state from
    its rows."""
    keys: list[Any] = ["a", "b", "ä", 1, 1.0, True, 0.5, None, ("a", 1), ("a", 1.0)]
    code = f"from edgert.operators.state.partitioning import Copies\nprint([Copies(16)[k] for k in {keys!r}])"
    told = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                       capture_output=True, text=True, check=True).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert told == {"[5, 1, 12, 8, 8, 8, 9, 9, 13, 13]"}


def test_what_can_be_no_key_goes_where_it_is_counted() -> None:
    typed, plain = Divider((("a", "long"),), 3), Divider((("a", ANY),), 3)
    bad: list[Row] = [{"a": "x"}, {"a": [1]}, {"a": 1.5}]
    assert typed.divide(bad) == [bad, [], []]
    assert plain.divide([{"a": [1]}])[0] == [{"a": [1]}]


def test_endless_keys_take_no_endless_room() -> None:
    copies = Copies(4)
    before = [copies[n] for n in range(KNOWN + 100)]
    assert len(copies) <= KNOWN
    assert [copies[n] for n in range(100)] == before[:100]


def test_long_keys_and_topics_take_no_room() -> None:
    copies, by_topic = Copies(4), CopiesByTopic(TopicTemplate("t/{source}/v"), 4)
    for n in range(50):
        long = f"{n}" + "x" * 10_000
        assert copies[long] == copies[long] == by_topic[f"t/{long}/v"]
        assert copies[long, n] == copies[long, n]
        assert copies[n] == copies[n]
    assert sorted(copies) == list(range(50))
    assert not by_topic


@given(st.text(st.characters(exclude_characters="/+#\0"), min_size=1, max_size=5), st.integers(2, 5))
def test_a_message_goes_to_the_copy_to_which_rows_of_its_device_go(device: str, copies: int) -> None:
    by_topic = CopiesByTopic(TopicTemplate("a/{room}/{source}"), copies)
    rows = Divider((("source", "string"),), copies).divide([{"source": device}])
    assert rows[by_topic[f"a/r/{device}"]]
    assert by_topic[f"a/other/{device}"] == by_topic[f"a/r/{device}"]
    assert 0 <= by_topic["too short"] < copies, "what nobody subscribed to"


def test_a_topic_without_a_device_is_a_device_to_the_source_and_to_the_division_alike() -> None:
    template = TopicTemplate("s/{source}/t")
    device = TopicCaptures(template)["s//t"]["source"]
    rows = Divider((("source", "string"),), 4).divide([{"source": device}])
    assert rows[CopiesByTopic(template, 4)["s//t"]]
