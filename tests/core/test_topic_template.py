"""Topic templates, and positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.checkpoint.position import Position
from edgert.core.errors import show
from edgert.core.text.mqtt_text import fits
from edgert.core.text.topic_template import TopicTemplate
from edgert.mqtt.topics import check_filter

LEVEL = st.text(st.characters(exclude_characters="+#/{}").filter(fits), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("text", "topic_filter", "topic", "captures"),
    [
        ("city/{source}/sense", "city/+/sense", "city/a1/sense", {"source": "a1"}),
        ("{a}/+/{b}/#", "+/+/+/#", "x/y/z/more/levels", {"a": "x", "b": "z"}),
        ("#", "#", "x/y", {}),
        ("plain/100%", "plain/100%", "plain/100%", {}),
        ("{a}//", "+//", "//", {"a": ""}),
    ],
)
def test_a_sources_template_gives_a_filter_and_the_named_levels(
    text: str, topic_filter: str, topic: str, captures: dict[str, str]
) -> None:
    template = TopicTemplate(text)
    assert (template.filter, template.captures(topic)) == (topic_filter, captures)


@pytest.mark.parametrize(
    "text",
    ["", "\0", "a/{b", "a/b}", "a/{}", "a/{1b}", "a/x{b}", "{a}/{a}", "a+/b", "#/a", "a/b#", "x" * 70_000, "a/" * 200],
)
def test_text_that_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected .*, got "):
        TopicTemplate(text)


@pytest.mark.parametrize(
    "text", ["a/+", "#", "a/#", "{a", "", "a/" * 200, "$share/g/a", "$queue/a", "$SYS/broker", "$SYS"]
)
def test_a_sinks_template_has_no_wildcards(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected .*, got "):
        TopicTemplate(text, sink=True)


def test_two_hundred_levels_are_taken() -> None:
    text = "/".join(["a"] * 200)
    assert TopicTemplate(text).filter == TopicTemplate(text, sink=True).fill([{}])[0] == text
    check_filter(text)
    with pytest.raises(ValueError, match=r"^expected at most 200 levels \(Mosquitto hangs up at more\), got 201"):
        check_filter(text + "/#")


def test_a_row_makes_no_topic_at_which_brokers_take_no_message() -> None:
    template = TopicTemplate("{a}/{b}", sink=True)
    assert template.filled({"a": "$aws", "b": "things"}) == "$aws/things"
    for sink, row in ((template, {"a": "$SYS", "b": "x"}), (TopicTemplate("${b}/x", sink=True), {"b": "share"})):
        with pytest.raises(ValueError, match=r"^expected a topic that does not begin with \$SYS"):
            sink.fill([row])


@given(LEVEL, LEVEL)
def test_what_a_sink_fills_a_source_captures(one: str, other: str) -> None:
    topic = TopicTemplate("t%/{one}/x/{other}", sink=True).filled({"one": one, "other": other, "more": 1})
    assert topic == f"t%/{one}/x/{other}"
    assert TopicTemplate("t%/{one}/x/{other}").captures(topic) == {"one": one, "other": other}


@pytest.mark.parametrize("value", [None, "", "a/b", "+", "a#", "\0"])
def test_a_field_that_makes_no_level_is_refused(value: object) -> None:
    template = TopicTemplate("a/{b}-{c}", sink=True)
    assert template.filled({"b": 1.5, "c": True}) == "a/1.5-True"
    with pytest.raises(ValueError, match="expected field 'b' to hold a topic level"):
        template.filled({"b": value, "c": 1})


def test_a_position_covers_what_is_below_it_and_no_hole() -> None:
    position = Position(5, frozenset([2, 3]))
    assert [i for i in range(1, 8) if position.covers(i)] == [1, 4, 5]


def test_values_are_shown_short_whatever_they_are() -> None:
    assert show("x" * 100, 10) == "'xxxxxxxx…"
    assert show(10**5_000) == "a int that cannot be shown"


def test_rows_are_filled_by_column_and_each_as_by_itself() -> None:
    template = TopicTemplate("a/{b}", sink=True)
    rows = [{"b": value} for value in ("x", 1, True, 1.0, "x", "1")]
    assert template.fill(rows) == [template.filled(row) for row in rows]
    assert template.fill(rows[::-1]) == ["a/1", "a/x", "a/1.0", "a/True", "a/1", "a/x"]
    for bad in ({}, {"b": ""}, {"b": "x/y"}, {"b": None}):
        with pytest.raises(ValueError, match="expected field 'b'"):
            template.fill([{"b": "x"}, bad])
    assert template.fill([{"b": ["x"]}]) == ["a/['x']"]


@pytest.mark.parametrize("text", ["$share/group/home/#", "$queue/home/+", "$share"])
def test_a_shared_subscription_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a filter that is not shared .* this flow would miss the others"):
        TopicTemplate(text)
