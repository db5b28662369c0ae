"""A table of boards (CSV) as one provisioning document per board. Pure.

The head names a setting of the provisioning file per column (`network.address`), or `id` for `gateway.id`, `site` for a
label, `labels`. A wrong line is told with its column, and the others go on.
"""

from __future__ import annotations

import csv
import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edgert.core.config import SettingEntry, entries, parse, sections
from edgert.core.errors import DocumentError, Problem, show
from edgert.core.ids import GATEWAY_NAME
from edgert.core.settings.agent import AgentSettings
from edgert.core.settings.board import BoardSettings, wifi_faults
from edgert.core.settings.gateway import GatewaySettings
from edgert.core.toml import to_toml

Document = dict[str, dict[str, Any]]
FILES: Final[tuple[type[Any], ...]] = (GatewaySettings, AgentSettings, BoardSettings)
SHORT: Final = {"id": "gateway.id", "labels": "agent.labels", "site": "agent.labels"}
OF_THE_CA: Final = "identity"
MOST_LINES: Final = 100_000


@dataclass(frozen=True, slots=True)
class BoardLine:
    """A line of the table."""

    line: int
    name: str
    settings: Document
    """The provisioning document without its identity."""


def common_untrusted(text: str, where: str, fleet: str) -> Document:
    """Settings that all boards have in common: a provisioning file without names and identity. Raises
    `DocumentError`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DocumentError(where, [Problem("file", "TOML", str(error))]) from error
    known = {name: cls for cls in reversed(FILES) for name, _, _ in sections(cls)}
    problems = [
        Problem(name, f"a table among {', '.join(sorted(known))}", show(table))
        for name, table in document.items()
        if name not in known or not isinstance(table, dict)
    ]
    if OF_THE_CA in document:
        problems.append(Problem(OF_THE_CA, "no identity: the CA makes one for each board", "one"))
    if not problems:
        problems = [*_faults(document), *_of_all(document, fleet)]
    if problems:
        raise DocumentError(where, problems)
    return document


def boards_untrusted(text: str, common: Document, fleet: str) -> tuple[list[BoardLine], list[Problem]]:
    """The boards of a table, and what is wrong in the lines that are none. Raises `DocumentError` where the head cannot
    be understood."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    if not lines:
        raise DocumentError("boards", [Problem("line 1", "names of columns, such as id,site,network.address", "none")])
    number, head = lines[0]
    separator = ";" if ";" in head and "," not in head else ","
    columns = _columns([cell.strip() for cell in head.split(separator)], number)
    boards: list[BoardLine] = []
    problems: list[Problem] = []
    taken: dict[tuple[str, str], int] = {}
    for number, line in lines[1 : MOST_LINES + 1]:
        found = _board(number, line, separator, columns, common, fleet)
        wrong = found if isinstance(found, list) else _again(found, taken)
        if wrong or isinstance(found, list):
            problems += wrong
        else:
            boards.append(found)
    if len(lines) > MOST_LINES + 1:
        problems.append(Problem(f"line {lines[MOST_LINES + 1][0]}", f"at most {MOST_LINES} boards", "more"))
    return boards, problems


def _columns(names: Sequence[str], line: int) -> list[tuple[str, SettingEntry]]:
    known = {entry.path: entry for cls in reversed(FILES) for entry in entries(cls) if entry.section != OF_THE_CA}
    problems, columns = [], []
    for name in names:
        path = SHORT.get(name, name)
        if path not in known:
            near = difflib.get_close_matches(name, [*SHORT, *known], n=1)
            hint = f"such as {near[0]}" if near else f"{', '.join(SHORT)} or a setting such as network.address"
            problems.append(Problem(f"line {line}, column {show(name)}", f"a known column, {hint}", "an unknown one"))
        else:
            columns.append((name, known[path]))
    repeated = sorted({name for name, _ in columns if [one for one, _ in columns].count(name) > 1})
    problems += [Problem(f"line {line}, column {name}", "a column once", "it twice") for name in repeated]
    if not problems and "gateway.id" not in {entry.path for _, entry in columns}:
        problems.append(Problem(f"line {line}", "a column id with the boards' names", ", ".join(names)))
    if problems:
        raise DocumentError("boards", problems)
    return columns


def _board(
    line: int, text: str, separator: str, columns: Sequence[tuple[str, SettingEntry]], common: Document, fleet: str
) -> BoardLine | list[Problem]:
    try:
        cells = next(csv.reader([text], delimiter=separator, strict=True))
    except csv.Error as error:
        return [Problem(f"line {line}", "cells separated by commas", str(error))]
    if len(cells) != len(columns):
        return [Problem(f"line {line}", f"{len(columns)} cells, as the head has", str(len(cells)))]
    document: Document = {name: dict(table) for name, table in common.items()}
    problems: list[Problem] = []
    labels = list(document.get("agent", {}).get("labels", []))
    for (name, entry), content in zip(columns, cells, strict=True):
        where, cell = f"line {line}, column {name}", content if entry.about.secret else content.strip()
        if entry.path == "agent.labels":
            labels += _labels(name, cell, where, problems)
        elif cell or entry.path == "gateway.id":
            value = _value(entry, cell, where, problems)
            document.setdefault(entry.section, {})[entry.name] = value
    if labels:
        document.setdefault("agent", {})["labels"] = labels
    if not problems:
        whole = [*_faults(document), *_of_all(document, fleet)]
        problems = [Problem(f"line {line}, {one.path}", one.expected, one.got) for one in whole]
    return problems or BoardLine(line, document["gateway"]["id"], document)


def _value(entry: SettingEntry, cell: str, where: str, problems: list[Problem]) -> Any:
    """A cell as the environment would be read. Notes a problem if that cannot be."""
    cls = next(cls for cls in FILES if entry in entries(cls))
    try:
        settings = parse(cls, "", {entry.variable: cell})
    except DocumentError as error:
        problems += [Problem(where, one.expected, one.got) for one in error.problems]
        return None
    value = getattr(getattr(settings, entry.section), entry.name)
    if entry.path == "gateway.id" and not GATEWAY_NAME.fullmatch(cell):
        problems.append(Problem(where, "the name of a board", show(cell)))
    return list(value) if isinstance(value, tuple) else value


def _labels(column: str, cell: str, where: str, problems: list[Problem]) -> list[str]:
    if column == "site":
        labels = [f"site={cell}"] if cell else []
    else:
        labels = cell.replace(";", " ").replace(",", " ").split()
    for label in labels:
        name, equals, value = label.partition("=")
        if not (name and equals and value):
            problems.append(Problem(where, "labels as NAME=VALUE with spaces between them", show(label)))
    return labels


def _faults(document: Document) -> list[Problem]:
    """Returns the faults of a whole document, found by the classes of its sections."""
    problems: dict[Problem, None] = {}
    for cls in FILES:
        names = {name for name, _, _ in sections(cls)}
        try:
            parse(cls, to_toml({name: table for name, table in document.items() if name in names}), {})
        except DocumentError as error:
            problems |= dict.fromkeys(error.problems)
    return list(problems)


def _of_all(document: Mapping[str, Mapping[str, Any]], fleet: str) -> list[Problem]:
    """Problems between sections, which no class sees alone."""
    gateway, central = document.get("gateway", {}), document.get("central", {})
    problems = []
    if gateway.get("fleet", fleet) != fleet:
        problems.append(Problem("gateway.fleet", f"{fleet}, the fleet of the CA", show(gateway["fleet"])))
    if gateway.get("id") and gateway["id"] == central.get("host"):  # it could pass for the broker by its common name
        problems.append(Problem("gateway.id", "another name than that of the central broker", show(gateway["id"])))
    return problems + wifi_faults(document.get("wifi", {}))


def _again(board: BoardLine, taken: dict[tuple[str, str], int]) -> list[Problem]:
    """Names and fixed addresses stand once. Notes those of the board."""
    address = board.settings.get("network", {}).get("address", "").partition("/")[0]
    keys = [("gateway.id", board.name), *([("network.address", address)] if address else [])]
    before = [(key, taken[key]) for key in keys if key in taken]
    if not before:
        taken.update(dict.fromkeys(keys, board.line))
    return [
        Problem(f"line {board.line}, {path}", "one that no other line has", f"{value} of line {line}")
        for (path, value), line in before
    ]
