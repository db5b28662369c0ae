"""A topic finds the template that may have given it as a try of each template would."""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgert.core.text.template_index import TemplateIndex
from edgert.core.text.topic_template import NAME
from tests.examples import examples


def first_of_all(templates: list[str], topic: str) -> int | None:
    """Tries each template."""
    for number, template in enumerate(templates):
        if re.fullmatch("[^/]+".join(map(re.escape, NAME.split(template)[::2])), topic, re.DOTALL):
            return number
    return None


@pytest.mark.parametrize(
    ("text", "given", "others"),
    [
        ("hot/{source}", ["hot/a", "hot/a.b"], ["hot/", "hot/a/b", "cold/a", "xhot/a"]),
        ("a.b/{x}-{y}/c", ["a.b/1-2/c"], ["a+b/1-2/c", "a.b/12/c", "a.b/1-2/c/d"]),
        ("ab{x}ba", ["ab-ba"], ["aba", "abba"]),
        ("plain", ["plain"], ["plain/x", ""]),
    ],
)
def test_a_template_is_found_by_the_topics_that_it_may_give(text: str, given: list[str], others: list[str]) -> None:
    index = TemplateIndex([text])
    assert [topic for topic in [*given, *others] if index.first(topic) is not None] == given


LEVELS = st.lists(st.sampled_from(["", "a", "b", "{x}", "{y}", "-"]), max_size=4).map("".join)
TEMPLATES = st.lists(LEVELS, min_size=1, max_size=3).map("/".join)
TOPICS = st.lists(st.text("ab-\n", max_size=6), min_size=1, max_size=3).map("/".join)


@given(st.lists(TEMPLATES, max_size=8), TOPICS)
@settings(max_examples=examples(200, 2_000))
def test_the_first_template_is_found_that_a_try_of_each_finds(templates: list[str], topic: str) -> None:
    assert TemplateIndex(templates).first(topic) == first_of_all(templates, topic)


@pytest.mark.parametrize("template", ["alarm/{source}/%d", "alarm/%d/{source}", "alarm/{source}-%d", "%d-{source}/x"])
def test_a_look_costs_the_same_for_500_templates_as_for_one(template: str) -> None:
    assert calls_of_a_look([template % n for n in range(500)]) <= calls_of_a_look([template % 499]) + 30


def calls_of_a_look(templates: list[str]) -> int:
    index, topic, calls = TemplateIndex(templates), templates[-1].replace("{source}", "device"), 0

    def count(frame: FrameType, event: str, told: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        found = index.first(topic)
    finally:
        sys.setprofile(None)
    assert found == len(templates) - 1
    return calls
