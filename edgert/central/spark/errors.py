"""Errors of Spark and Java in a line: their own texts run to hundreds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from edgert.core.errors import EdgertError

OF_SPARK: Final = (PySparkException, Py4JJavaError)
_LONGEST: Final = 500
_CAUSE: Final = "Caused by: "
_OURS: Final = "BatchFailed: "
_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
"""Spark's name of what is wrong, before it says so."""
_DAMAGED: Final = (
    "FAILED_READ_FILE",
    "DELTA_TRUNCATED",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "expected a Delta table that can be read",
)
PUT_BACK: Final = "; a table whose files are gone or damaged needs them back from a copy"


def reason(error: BaseException) -> str:
    """Why, in a line."""
    _, ours, told = str(error).partition(_OURS)
    if ours:  # of a batch, which Spark wraps in errors of its own, with a stack each
        return told.splitlines()[0][:_LONGEST]
    if not isinstance(error, OF_SPARK):
        return f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "An error occurred while calling"))]
    for line in lines:
        if found := _CONDITION.search(line):
            return line[found.start() :][:_LONGEST]
    # The outermost may say no more than that a thread waited for another.
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    return [*lines[:1], *causes][-1].removeprefix(": ")[:_LONGEST] if lines else type(error).__name__


def hint(why: str) -> str:
    """A remedy, where one is known."""
    return PUT_BACK if any(name in why for name in _DAMAGED) else ""


@contextmanager
def told_by_spark(what: str) -> Iterator[None]:
    """Turns Spark's errors within into `EdgertError`: what: why."""
    try:
        yield
    except OF_SPARK as error:
        why = reason(error)
        raise EdgertError(f"{what}: {why}{hint(why)}") from error
