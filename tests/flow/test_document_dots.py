"""Keys of many dots, which `tomllib` takes long over, are refused wherever they stand; other dots are not counted."""

from __future__ import annotations

import importlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.errors import DocumentError
from edgert.core.toml import to_toml
from edgert.flow import document
from edgert.flow.document import MAX_BYTES, MAX_DOTS, load, read_untrusted
from edgert.operators.builder import stream
from edgert.operators.registry import REGISTRY

KEY = " . ".join(["a", '"b.b"', "'c.c'"] * 22)
"""It has 65 dots."""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"[{KEY}]", 1),
        (f"x = 1.5 # it's\ny = {{ a = 1, {KEY} = 2 }}", 2),
        (f"x = 'it'\n{KEY} = 2", 2),
        (f'x = "\\\\"\n{KEY} = 2\ny = "\'"', 2),
        (f"x = [\n'''\n'\"'''''\n, {{ {KEY} = 2 }}]", 4),
        (f"x = {{ a = ''''''\n, {KEY} = 2 }}", 2),
        (f'x = {{ a = """\n \' \\""" "" """", {KEY} = 2, z = "\'" }}', 2),
        (f'x = """\n{KEY.replace(chr(34), "")}\n\\"""""\n{KEY} = 1', 4),
    ],
)
def test_a_key_with_too_many_dots_is_found_beside_and_behind_strings(text: str, line: int) -> None:
    with pytest.raises(DocumentError) as refused:
        read_untrusted(text)
    assert [str(p) for p in refused.value.problems] == [f"line {line}: expected at most 64 dots in a key, got 65"]


def tree(splits: int) -> dict[str, Any]:
    if splits == 0:
        return {"value": 0.5}
    return {"field": "t", "threshold": 20.25, "at_most": tree(splits // 2), "above": tree((splits - 1) // 2)}


def test_what_is_written_can_be_read() -> None:
    model = {"kind": "decision_tree", "version": 1, "tree": tree(63)}
    notes = {f"s{n}": {"offset": n + 0.5, "note": "e.g. 'a.b' \"c.d\"" + "." * 70} for n in range(70)}
    flow = stream("air").mqtt_source("a/{source}").apply("annotate", table=notes)
    flow = flow.apply("predict", name="guess", model="m", fields=["t"], initial=model).apply("publish", topic="o")
    plain = flow.document()
    text = to_toml(plain)
    assert max(line.count(".") for line in text.splitlines()) > MAX_DOTS
    assert load(text, REGISTRY).document == flow.build().document


def test_dots_of_strings_and_comments_are_no_dots_of_a_key() -> None:
    text = "x = '''" + "a.b" * 70 + "\n" + '""" . ' * 70 + "\n''' # " + "d.d" * 70 + "\ny = 'a.b.c' # .\n"
    assert read_untrusted(text)["y"] == "a.b.c"


PARTS = st.sampled_from([*"ab.\"'\\\n #={}[],1", '"""', "'''", "a.b = 1\n", "x = ", ", a.b = 1", ", c = "])
BEGIN = st.sampled_from(["", *(f"x = {{ a = {quote}" for quote in ("'", '"', "'''", '"""'))])


@given(BEGIN, st.lists(PARTS, max_size=12))
def test_no_key_that_tomllib_reads_is_hidden_by_what_stands_before_it(begin: str, parts: list[str]) -> None:
    text, dots = begin + "".join(parts), 0
    parser: Any = importlib.import_module("tomllib._parser")
    parse_key = parser.parse_key

    def heard(*args: Any) -> Any:
        nonlocal dots
        found = parse_key(*args)
        dots = max(dots, len(found[1]) - 1)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "parse_key", heard)
        try:
            read_untrusted(text, format="toml")
        except DocumentError:
            pass
        patch.setattr(document, "MAX_DOTS", dots - 1)
        if dots:
            with pytest.raises(document.SyntaxFault):
                document.check_keys(text)


@pytest.mark.parametrize(
    "text", ['"""\\', '\\"""', '"""', "'''", "'a", '"\\"', "a", "a ", "a.", '"a".', '""', "'", "\\"]
)
def test_keys_are_looked_through_in_linear_time(text: str) -> None:
    most = text * (MAX_BYTES // len(text))
    began = time.process_time()
    try:
        document.check_keys(most)
    except document.SyntaxFault:
        pass
    assert time.process_time() - began < 10.0, "what is quadratic takes minutes"
