"""Topic filters against a brute-force matcher: every topic of up to three levels over a small alphabet."""

from __future__ import annotations

import sys
from functools import cache
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgert.mqtt.topics import TopicTrie, check_filter, covers, merge_filters
from tests.topic_filters import matches

LEVELS = ("a", "b", "$s", "")
TOPICS = ["/".join(levels) for length in (1, 2, 3, 4) for levels in product(LEVELS, repeat=length)]


def brute_force(wanted: list[str], levels: list[str], first: bool = True) -> bool:
    """Section 4.7 word by word, recursively."""
    if not wanted:
        return not levels
    head, rest = wanted[0], wanted[1:]
    if head == "#":
        return not (first and levels and levels[0].startswith("$"))
    if not levels:
        return False
    if head == "+":
        return not (first and levels[0].startswith("$")) and brute_force(rest, levels[1:], False)
    return head == levels[0] and brute_force(rest, levels[1:], False)


@cache
def matched(text: str) -> set[str]:
    return {topic for topic in TOPICS if topic and brute_force(text.split("/"), topic.split("/"))}


def overlaps(a: str, b: str) -> bool:
    return bool(matched(a) & matched(b))


_levels = st.lists(st.sampled_from(("a", "b", "$s", "", "+")), min_size=1, max_size=3)
filters = st.one_of(
    _levels.map("/".join).filter(bool), _levels.map(lambda levels: "/".join([*levels, "#"])), st.just("#")
)


@given(filters)
def test_matches_agrees_with_brute_force(text: str) -> None:
    assert {topic for topic in TOPICS if topic and matches(text, topic)} == matched(text)


@example("+", "/#")
@example("/+/#", "/#")
@given(filters, filters)
def test_covers_agrees_with_brute_force(a: str, b: str) -> None:
    assert covers(a, b) is (matched(b) <= matched(a))


@given(st.lists(filters, max_size=8))
def test_merged_filters_cover_every_given_one_and_never_overlap(given_filters: list[str]) -> None:
    by_given = merge_filters(given_filters)
    merged = sorted({*by_given.values()})
    for i, one in enumerate(merged):
        check_filter(one)
        assert not any(overlaps(one, other) for other in merged[i + 1 :])
    assert by_given.keys() == {*given_filters}
    assert all(covers(other, one) for one, other in by_given.items())
    if not any(overlaps(a, b) for i, a in enumerate(given_filters) for b in given_filters[i + 1 :]):
        assert merged == sorted(given_filters)


def test_the_work_of_merging_grows_with_the_number_of_filters_that_do_not_overlap() -> None:
    """Counted in calls, those of methods of lists and dictionaries among them."""

    def calls(filters: list[str]) -> int:
        count = 0

        def counted(_frame: object, event: str, _argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            merged = merge_filters(filters)
        finally:
            sys.setprofile(before)
        assert merged == dict(zip(filters, filters, strict=True))
        return count

    for form in ("site/{}/+/state", "{}/#", "+/{}", "deep/" * 46 + "{}/a/+"):
        one, five = (calls([form.format(n) for n in range(number)]) for number in (300, 1_500))
        assert five < 5.5 * one < 1_000_000


@pytest.mark.parametrize(
    ("given_filters", "expected"),
    [
        ([], []),
        (["a/b", "a/b"], ["a/b"]),
        (["a/+", "a/b", "c"], ["a/+", "c"]),
        (["a/+/x", "a/b/+"], ["a/+/+"]),
        (["a/#", "+/b"], ["+/#"]),
        (["a", "a/#"], ["a/#"]),
        (["#", "$SYS/#"], ["#", "$SYS/#"]),
        (["+/x", "a/+", "b/c"], ["+/+"]),
    ],
)
def test_merging_by_example(given_filters: list[str], expected: list[str]) -> None:
    assert sorted({*merge_filters(given_filters).values()}) == expected


@given(st.lists(filters, max_size=12), st.data())
def test_trie_agrees_with_brute_force_while_filters_come_and_go(texts: list[str], data: st.DataObject) -> None:
    trie: TopicTrie[int] = TopicTrie(max_cached=10)
    present: dict[int, str] = {}
    for i, text in enumerate(texts):
        trie.add(text, i)
        present[i] = text
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(present)))
            trie.remove(present.pop(gone), gone)
        for topic in data.draw(st.lists(st.sampled_from(TOPICS[:84]), max_size=6)):
            expected = sorted(i for i, text in present.items() if brute_force(text.split("/"), topic.split("/")))
            assert sorted(trie.match(topic)) == expected
    for i, text in present.items():
        trie.remove(text, i)
    assert trie._root.children == {}


def test_removing_what_is_not_there_says_so() -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add("a/b", "x")
    for text, value in (("a/b", "y"), ("a", "x"), ("a/b/c", "x"), ("a/b/#", "x")):
        with pytest.raises(KeyError, match=text):
            trie.remove(text, value)
    assert trie.match("a/b") == ("x",)


def test_cache_of_matches_is_bounded() -> None:
    trie: TopicTrie[str] = TopicTrie(max_cached=100)
    trie.add("#", "x")
    for i in range(1000):
        assert trie.match(f"t/{i}") == ("x",)
    assert len(trie._cache) <= 100
    assert trie.match("long/" * 100) == ("x",)
    assert max(map(len, trie._cache)) <= 256


@pytest.mark.parametrize("text", ["", "a#", "#/a", "a/#/b", "a+/b", "+a", "a\0"])
def test_bad_filters_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected .*, got"):
        check_filter(text)
