"""The glossary: each term once, and none of the words that it rules out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
TERMS, NOT_USED = GLOSSARY.read_text().split("## Words not used")
OF_OTHERS = ("benchmarks.md", "placement.md")
"""Pages that compare with papers and products, by their own words."""
TOPOLOGIES = {
    "storm.py", "os-scheduling.md", "os-scheduling-alone.md", "test_storm.py", "storm_answers.py", "storm_rig.py",
    "test_plain_answers.py", "ant_system.py", "topologies.py", "measure.py", "test_placement.py",
}  # fmt: skip
"""Files about Storm, and about a paper, where a topology is what a flow is to us."""
SEARCHED = (
    "README.md", "CHANGELOG.md", "Makefile", "docs/**/*.md", "scripts/*", "systemd/*", "gateway/web/static/*",
    *(f"{room}/**/*.{ending}" for ending in ("py", "md", "toml", "html", "js", "css") for room in (
      "edgert", "gateway", "agent", "provisioning", "images", "benchmarks", "tests", "hw-tests")),
)  # fmt: skip

PLAIN_ROOMS = ("agent", "edgert", "gateway", "hw-tests", "images", "provisioning")
"""Packages in which the first word of a docstring is checked."""
RIDDLE = re.compile(r"(Of|The same|What|Whatever|Whether|Who|Whoever|Whom|Whose|Nobody)\b")
WITHOUT_NOUN = re.compile(r"(Those|That|By|Is|Are|As|So long|So many|It|They|None of|Nothing|Everything)\b|[^.:]*\?")
"""Docstrings that begin with a word for a thing that is not named, and questions."""
HALF_SENTENCE = re.compile(r"(And|But|How|Or|Than|Until|When)\b")


def first_column(text: str) -> list[str]:
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    return rows[2:]  # the head of the table, and the line below it


def test_terms_stand_in_order_and_once() -> None:
    terms = first_column(TERMS)
    assert len(terms) > 30
    assert terms == sorted(set(terms))


def ruled_out(words: Iterable[str]) -> re.Pattern[str]:
    """Finds the words and their plurals, also in names, and where a line or a string ends between two of them."""
    between = r"[-_\s#*\"]*"
    found = (between.join(re.sub("y$", "(?:y|ie)", part) for part in word.split()) for word in words)
    return re.compile(rf"(?<![A-Za-z])(?i:{'|'.join(found)})(?i:(?:e?s)?)(?![A-Za-z])")


def uses(words: re.Pattern[str], text: str) -> list[tuple[int, str]]:
    """(line, words) of each use. A capital letter begins a word in a name."""
    apart = re.sub("(?<=[a-z])(?=[A-Z])", "_", text)
    return [(apart.count("\n", 0, match.start()) + 1, match[0]) for match in words.finditer(apart)]


def test_words_that_the_glossary_rules_out_are_not_used() -> None:
    words = ruled_out(first_column(NOT_USED))
    files = {file for pattern in SEARCHED for file in ROOT.glob(pattern) if file.is_file()}
    assert len(files) > 1_200
    found = [
        f"{file.relative_to(ROOT)}:{line}: {use}"
        for file in sorted(files - {GLOSSARY, Path(__file__)})
        if file.name not in OF_OTHERS
        for line, use in uses(words, file.read_text())
        if not (file.name in TOPOLOGIES and use.lower().startswith("topolog"))
    ]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "message buses", "a message\nbus", "# a message\n    # bus", "topologies", "dead-letter queue",
        "dead_letter_queue", "TOPOLOGIES", "replicas_of_x", "DeadLetterQueue()", "no_replica",
        "two slaves", '"a dead "\n"letter queue"',
    ],
)  # fmt: skip
def test_a_word_that_is_ruled_out_is_found_in_each_form(text: str) -> None:
    assert uses(ruled_out(first_column(NOT_USED)), text)


@pytest.mark.parametrize("text", ["topological order", "dead letters", "the message; a bus", "enslaved"])
def test_other_words_are_not(text: str) -> None:
    assert not uses(ruled_out(first_column(NOT_USED)), text)


def docstrings(text: str) -> list[tuple[int, str]]:
    """(line, text) of each docstring, those of attributes and constants included."""
    return [
        (node.lineno, node.value.value.strip())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def files_of_plain_rooms() -> list[Path]:
    rooms = {room: sorted((ROOT / room).glob("**/*.py")) for room in PLAIN_ROOMS}
    assert all(rooms.values())
    return [file for files in rooms.values() for file in files]


def test_docstrings_of_public_functions_begin_with_no_half_sentence() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {text.splitlines()[0]}"
        for file in files_of_plain_rooms()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
        for text in [ast.get_docstring(node) or ""]
        if HALF_SENTENCE.match(text)
    ]
    assert not found


def test_docstrings_begin_with_a_thing_or_a_verb() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for file in files_of_plain_rooms()
        for line, text in docstrings(file.read_text())
        if RIDDLE.match(text)
    ]
    assert not found


def test_docstrings_name_their_thing_and_ask_nothing() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for file in files_of_plain_rooms()
        for line, text in docstrings(file.read_text())
        if WITHOUT_NOUN.match(text)
    ]
    assert not found
