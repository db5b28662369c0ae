"""The glossary: each term once, and none of the words that it rules out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
TERMS, NOT_USED = GLOSSARY.read_text().split("## Words not used")
OF_OTHERS = ("benchmarks.md", "placement.md")
"""Pages that compare with papers and products, by their own words."""
STORM = ("storm.py", "os-scheduling.md", "os-scheduling-alone.md")
"""A topology is to Storm what a flow is to us."""

PLAIN_ROOMS = ("agent", "edgert", "gateway", "images", "provisioning")
"""Packages in which the first word of a docstring is checked."""
RIDDLE = re.compile(r"(What|Whatever|Whether|Who|Whoever|Whom|Whose|Nobody)\b")


def first_column(text: str) -> list[str]:
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    return rows[2:]  # the head of the table, and the line below it


def test_terms_stand_in_order_and_once() -> None:
    terms = first_column(TERMS)
    assert len(terms) > 30
    assert terms == sorted(set(terms))


def test_words_that_the_glossary_rules_out_are_not_used() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    code = [
        file
        for room in ("edgert", "gateway", "agent", "provisioning", "images")
        for file in ROOT.glob(f"{room}/**/*.py")
    ]
    words = re.compile(r"\b(" + "|".join(first_column(NOT_USED)) + r")s?\b", re.IGNORECASE)
    found = [
        f"{file.relative_to(ROOT)}:{number}: {match[0]}"
        for file in (*pages, *code)
        if file != GLOSSARY and file.name not in OF_OTHERS
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (match := words.search(line)) and not (file.name in STORM and match[0].lower() == "topology")
    ]
    assert not found


def docstrings(text: str) -> list[tuple[int, str]]:
    """(line, text) of each docstring, those of attributes and constants included."""
    return [
        (node.lineno, node.value.value.strip())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def test_docstrings_begin_with_a_thing_or_a_verb() -> None:
    rooms = {room: sorted((ROOT / room).glob("**/*.py")) for room in PLAIN_ROOMS}
    assert all(rooms.values())
    files = [file for files in rooms.values() for file in files]
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for file in files
        for line, text in docstrings(file.read_text())
        if RIDDLE.match(text)
    ]
    assert not found
