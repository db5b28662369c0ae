"""Flow documents, TOML or JSON: text to a checked flow and back. One schema, one check for both and for Python."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final, Literal

from edgert.core.errors import DocumentError, Problem, show
from edgert.core.text_files import text_untrusted
from edgert.flow.check import check
from edgert.flow.graph import Flow
from edgert.flow.spec import Registry

MAX_BYTES: Final = 256 * 1024
MAX_NESTING: Final = 32
MAX_DOTS: Final = 64
"""Dots in one key of TOML: `tomllib` takes time quadratic in the parts of a dotted key."""
Format = Literal["toml", "json", "auto"]
_NO_KEY = re.compile(
    r"""
    \#[^\n]*+                                                    # a comment
    | \"{3} (?: [^"\\]++ | \\[\s\S] | "{1,2}(?!") )*+ (?: "{3,5} | \\?\Z )
    | '{3} (?: [^']++ | '{1,2}(?!') )*+ (?: '{3,5} | \Z )
    | " (?: [^"\\\n]++ | \\[^\n] )*+ "?
    | ' [^'\n]*+ '?
    """,
    re.VERBOSE,
)
"""A comment or a string of TOML; one that does not end goes on to where `tomllib` gives up."""
_DOTTED = re.compile(r"""[\w"-]++(?:[ \t]*+\.[ \t]*+[\w"-]++)*+""", re.ASCII)
"""A key or a number, where each string is a quotation mark."""
_TOML_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|(end of document))\)", re.DOTALL)


def load(text: str | bytes, registry: Registry, *, format: Format = "auto", what: str = "flow document") -> Flow:  # noqa: A002
    """The flow that `text` describes. `auto` takes text that begins with a brace for JSON.

    Raises DocumentError, whose title is `what`, with every problem found: path, what was expected and what came.
    """
    return from_plain(read_untrusted(text, format=format, what=what), registry, what=what)


def from_plain(document: Mapping[str, Any], registry: Registry, *, what: str = "flow document") -> Flow:
    """The flow that a plain (JSON types only) document describes; errors as with `load`."""
    if not isinstance(document, Mapping):
        raise DocumentError(what, [Problem("document", "a table", show(document))])
    flow, problems = check(document, registry)
    if problems or flow is None:
        raise DocumentError(what, problems)
    return flow


def read_untrusted(text: str | bytes, *, format: Format = "auto", what: str = "flow document") -> dict[str, Any]:  # noqa: A002
    """Syntax only: the plain document. Raises DocumentError with line and column."""
    try:
        document = _read(_decoded(text, what), format)
    except SyntaxFault as fault:
        raise DocumentError(what, [fault.problem]) from None
    if not isinstance(document, dict):
        raise DocumentError(what, [Problem("document", "a table", show(document))])
    if _deeper_than(document, MAX_NESTING):
        raise DocumentError(what, [Problem("document", f"at most {MAX_NESTING} levels of nesting", "more")])
    return document


class SyntaxFault(Exception):
    def __init__(self, path: str, expected: str, got: str) -> None:
        self.problem = Problem(path, expected, got)


def _decoded(text: str | bytes, what: str) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="replace"))
    if size > MAX_BYTES:
        raise SyntaxFault("document", f"at most {MAX_BYTES} bytes", f"{size}")
    return text.removeprefix("\ufeff") if isinstance(text, str) else text_untrusted(text, what)


def _read(text: str, form: Format) -> Any:
    if form == "json" or (form == "auto" and text.lstrip()[:1] == "{"):
        return _read_json(text)
    return _read_toml(text)


def _read_json(text: str) -> Any:
    try:
        value = json.loads(text, object_pairs_hook=_no_repetition, parse_constant=_no_constant)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError as error:  # no checkpoint, and no message, could hold it
        raise SyntaxFault("document", "whole surrogate pairs", show(error.object[error.start : error.end])) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        got = show(text[error.pos : error.pos + 20]) if error.pos < len(text) else "the end of the document"
        raise SyntaxFault(place, f"JSON ({error.msg})", got) from None
    except RecursionError:
        raise SyntaxFault("document", f"at most {MAX_NESTING} levels of nesting", "more") from None
    except ValueError as error:  # an integer of thousands of digits
        raise SyntaxFault("document", "numbers of reasonable length", show(str(error))) from None


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise SyntaxFault("document", "each key once in a table", f"{show(key)} twice")
        table[key] = value
    return table


def _no_constant(name: str) -> Any:
    raise SyntaxFault("document", "finite numbers", name)


def _read_toml(text: str) -> Any:
    if any(line.count(".") > MAX_DOTS for line in text.split("\n")):
        check_keys(text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_PLACE.fullmatch(str(error))
        if found is None or found.group(2) is None:
            message = found.group(1) if found else str(error)
            last = text.rstrip().count("\n") + 1
            raise SyntaxFault(f"line {last}", f"TOML ({message})", "the end of the document") from None
        message, line_number, column = found.group(1), int(found.group(2)), int(found.group(3))
        at = show(text.split("\n")[line_number - 1].strip())
        raise SyntaxFault(f"line {line_number}, column {column}", f"TOML ({message})", at) from None
    except RecursionError:
        raise SyntaxFault("document", f"at most {MAX_NESTING} levels of nesting", "more") from None
    except ValueError as error:  # an integer of thousands of digits, a date that is none
        raise SyntaxFault("document", "TOML with values in range", show(str(error))) from None


def check_keys(text: str) -> None:
    """Raises if a key of a TOML text has too many dots. Linear: what a repetition has taken it never gives back."""

    def in_short(found: re.Match[str]) -> str:
        return ("" if found[0][0] == "#" else '"') + "\n" * found[0].count("\n")

    short = _NO_KEY.sub(in_short, text)
    for found in _DOTTED.finditer(short):
        if (dots := found[0].count(".")) > MAX_DOTS:
            line = short.count("\n", 0, found.start()) + 1
            raise SyntaxFault(f"line {line}", f"at most {MAX_DOTS} dots in a key", str(dots))


def _deeper_than(document: Any, limit: int) -> bool:
    """True if tables and lists are nested deeper than `limit`. Without recursion, since the depth may be any."""
    level = [document]
    for _ in range(limit + 1):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return True


def to_json(document: Mapping[str, Any]) -> str:
    """The plain document as JSON text."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
