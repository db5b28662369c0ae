"""A check: a command for the board, and a function from what it printed to a verdict. Nothing here touches a board."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

Level = Literal["good", "bad", "skipped"]
NO_IMAGE: Final = "the board was not made from an image"


@dataclass(frozen=True, slots=True)
class Answer:
    """The board's answer to a command."""

    status: int
    text: str
    """Standard output and standard error."""
    now: float = 0.0
    """This machine's clock (s since 1970) when the answer came."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a check, with its reason."""

    level: Level
    why: str


@dataclass(frozen=True, slots=True)
class HardwareCheck:
    """A command that changes nothing on the board, and a function that judges its answer."""

    name: str
    command: str
    judge: Callable[[Answer], Verdict]
    of_image: bool = False
    """True if the check asks for what images promise; a board that was set up by hand need not have it."""

    def verdict(self, answer: Answer) -> Verdict:
        """Judges an answer; one that cannot be read is bad."""
        said = last_line(answer.text) or f"nothing, with status {answer.status}"
        try:
            found = self.judge(answer)
        except (ValueError, LookupError, TypeError, AttributeError):
            return bad(f"expected an answer that can be read, got: {said}")
        return found if found.why else bad(f"expected an answer, got {said}")


def good(why: str) -> Verdict:
    return Verdict("good", why)


def bad(why: str) -> Verdict:
    return Verdict("bad", why)


def skipped(why: str) -> Verdict:
    return Verdict("skipped", why)


def good_if(holds: bool, why: str) -> Verdict:
    """Returns a good or a bad verdict, with the same reason."""
    return good(why) if holds else bad(why)


def last_line(text: str) -> str:
    """The last line that is not empty, cut to what fits into a report."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def documents(text: str) -> list[dict[str, Any]]:
    """Reads the JSON objects in a text; what stands around them is of other commands. Raises `ValueError`."""
    found, reader = [], json.JSONDecoder()
    while "{" in text:
        text = text[text.index("{") :]
        one, end = reader.raw_decode(text)
        found.append(one)
        text = text[end:]
    return found


def pairs(text: str, separator: str = " ") -> Iterator[tuple[str, str]]:
    """The lines of a text, each as its first word and the rest."""
    for line in text.splitlines():
        name, between, rest = line.strip().partition(separator)
        if name and between:
            yield name, rest.strip()
