"""The description of a laboratory, a TOML file: its boards, and the links between them."""

from __future__ import annotations

import heapq
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgert.core.errors import EdgertError
from edgert.core.ids import GATEWAY_NAME
from tests.lab.forwarding import Way

CENTRAL = "central"
"""The name of the place of the central broker and the collector, in links and commands."""
MOST_BOARDS = 200
KEYS = {"delay_ms", "jitter_ms", "loss", "mbit_s", "queue_kb"}
"""Of a link."""


class DescriptionError(EdgertError):
    """A laboratory cannot be made as described."""


@dataclass(frozen=True, slots=True)
class BoardDescription:
    """One board."""

    name: str
    cores: float = 0.0
    """Limit of its processes together; 0: none."""
    memory_mb: int = 0
    """Limit of its processes together; 0: none."""
    slots: int = 0
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """More settings of its gateway, by section."""
    agent: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """More settings of its agent, by section."""


@dataclass(frozen=True, slots=True)
class Description:
    """A laboratory."""

    boards: tuple[BoardDescription, ...]
    ways: Mapping[tuple[str, str], Way]
    """Of every ordered pair of places: boards, and `CENTRAL`."""
    seed: int = 0
    """Of loss and jitter."""
    agents: bool = True
    """Each board has an agent."""

    @property
    def places(self) -> list[str]:
        return [CENTRAL, *(board.name for board in self.boards)]


def read(path: Path) -> Description:
    """Raises `DescriptionError`."""
    try:
        return parse(tomllib.loads(path.read_text()))
    except (OSError, tomllib.TOMLDecodeError, DescriptionError) as error:
        raise DescriptionError(f"{path}: {error}") from error


def parse(document: Mapping[str, Any]) -> Description:
    """Raises `DescriptionError` naming the entry."""
    _only(document, {"seed", "agents", "boards", "links", "otherwise"}, "the file")
    boards = tuple(_board(table, f"boards[{n}]") for n, table in enumerate(_tables(document, "boards")))
    names = [board.name for board in boards]
    if not boards or len(boards) > MOST_BOARDS or len({*names, CENTRAL}) != len(names) + 1:
        raise DescriptionError(f"boards: expected 1 to {MOST_BOARDS} of different names, none of them {CENTRAL}")
    places = [CENTRAL, *names]
    links: dict[tuple[str, str], Way] = {}
    for number, table in enumerate(_tables(document, "links")):
        where = f"links[{number}]"
        _only(table, {"between", *KEYS}, where)
        between = table.get("between")
        if not isinstance(between, list) or len(between) != 2 or not set(between) <= set(places):
            raise DescriptionError(f"{where}.between: expected two of {', '.join(places)}, got {between!r}")
        a, b = between
        links[a, b] = links[b, a] = _way(table, where)
    otherwise = _way(document["otherwise"], "otherwise") if "otherwise" in document else None
    agents = document.get("agents", True)
    if not isinstance(agents, bool):
        raise DescriptionError(f"agents: expected true or false, got {agents!r}")
    return Description(boards, ways(places, links, otherwise), int(_number(document, "seed", "the file")), agents)


def ways(
    places: Sequence[str], links: Mapping[tuple[str, str], Way], otherwise: Way | None = None
) -> dict[tuple[str, str], Way]:
    """The way of every ordered pair: along the links with the least delay, or `otherwise`. Raises `DescriptionError`
    for a pair with neither."""
    found: dict[tuple[str, str], Way] = {}
    for origin in places:
        reached = _from(origin, links)
        for destination in places:
            if destination == origin:
                continue
            way = reached.get(destination, otherwise)
            if way is None:
                raise DescriptionError(f"expected a path from {origin} to {destination}: add links, or [otherwise]")
            found[origin, destination] = way
    return found


def _from(origin: str, links: Mapping[tuple[str, str], Way]) -> dict[str, Way]:
    """Dijkstra over the delays."""
    found: dict[str, Way] = {}
    heap: list[tuple[float, int, str, Way | None]] = [(0.0, 0, origin, None)]
    count = 0
    while heap:
        _, _, place, way = heapq.heappop(heap)
        if place in found or (place == origin and way is not None):
            continue
        if way is not None:
            found[place] = way
        for (a, b), link in links.items():
            if a == place and b not in found and b != origin:
                count += 1
                longer = link if way is None else in_series(way, link)
                heapq.heappush(heap, (longer.delay_s, count, b, longer))
    return found


def in_series(first: Way, second: Way) -> Way:
    """One way in place of two behind each other: delays add up, the narrower one limits."""
    limited = [way for way in (first, second) if way.bytes_per_s]
    narrow = min(limited, key=lambda way: way.bytes_per_s) if limited else first
    return replace(
        narrow,
        delay_s=first.delay_s + second.delay_s,
        jitter_s=first.jitter_s + second.jitter_s,
        loss=1 - (1 - first.loss) * (1 - second.loss),
        cut=first.cut or second.cut,
    )


def _board(table: Mapping[str, Any], where: str) -> BoardDescription:
    _only(table, {"name", "cores", "memory_mb", "slots", "settings", "agent"}, where)
    name = table.get("name")
    if not isinstance(name, str) or not GATEWAY_NAME.fullmatch(name):
        raise DescriptionError(f"{where}.name: expected a gateway's name, got {name!r}")
    more = {key: table.get(key, {}) for key in ("settings", "agent")}
    for key, sections in more.items():
        if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
            raise DescriptionError(f"{where}.{key}: expected tables of a settings file, got {sections!r}")
    slots, memory = _number(table, "slots", where), _number(table, "memory_mb", where)
    return BoardDescription(name, _number(table, "cores", where), int(memory), int(slots), **more)


def _way(table: Any, where: str) -> Way:
    if not isinstance(table, dict):
        raise DescriptionError(f"{where}: expected a table, got {table!r}")
    _only(table, {"between", *KEYS}, where)
    loss = _number(table, "loss", where)
    if loss > 1:
        raise DescriptionError(f"{where}.loss: expected 0 to 1, got {loss}")
    return Way(
        _number(table, "delay_ms", where) / 1000,
        _number(table, "jitter_ms", where) / 1000,
        loss,
        _number(table, "mbit_s", where) * 125_000,
        int(_number(table, "queue_kb", where, Way().queue_bytes / 1024) * 1024),
    )


def _tables(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise DescriptionError(f"expected [[{key}]] tables, got {tables!r}")
    return tables


def _number(table: Mapping[str, Any], key: str, where: str, default: float = 0.0) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise DescriptionError(f"{where}.{key}: expected a number, not negative, got {value!r}")
    return float(value)


def _only(table: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := table.keys() - known:
        raise DescriptionError(f"{where}: expected {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")
