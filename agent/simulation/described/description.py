"""The description of a fleet, a TOML file: its boards, the links between them, and what goes wrong.

The laboratory (`docs/internals/laboratory.md`) and the simulation read the same file. The laboratory leaves out `speed`
and `[[events]]`; the simulation leaves out `slots`, `settings` and `agents`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.simulation.described.events import FleetEvent
from agent.simulation.described.events_of import events_of
from agent.simulation.described.tables import number, only, tables
from agent.simulation.described.ways import DescriptionError, Way, ways
from edgert.core.ids import GATEWAY_NAME
from edgert.core.text_files import ENCODING

CENTRAL: Final = "central"
"""The name of the place of the central broker and the collector, in links and commands."""
MOST_BOARDS: Final = 200
KEYS: Final = {"delay_ms", "jitter_ms", "loss", "mbit_s", "queue_kb"}
"""Keys of a link."""


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
    speed: float = 1.0
    """How many times faster a core is than the one on which costs were measured."""


@dataclass(frozen=True, slots=True)
class Description:
    """A fleet."""

    boards: tuple[BoardDescription, ...]
    ways: Mapping[tuple[str, str], Way]
    """Way between each ordered pair of places: boards, and `CENTRAL`."""
    seed: int = 0
    """Seed of loss and jitter."""
    agents: bool = True
    """Each board has an agent."""
    events: tuple[FleetEvent, ...] = ()

    @property
    def places(self) -> list[str]:
        return [CENTRAL, *(board.name for board in self.boards)]


def read(path: Path) -> Description:
    """Raises `DescriptionError`."""
    try:
        return parse(tomllib.loads(path.read_text(encoding=ENCODING)))
    except OSError as error:
        raise DescriptionError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, DescriptionError) as error:
        raise DescriptionError(f"{path}: {error}") from error


def parse(document: Mapping[str, Any]) -> Description:
    """Raises `DescriptionError` naming the entry."""
    only(document, {"seed", "agents", "boards", "links", "otherwise", "events"}, "the file")
    boards = tuple(_board(table, f"boards[{n}]") for n, table in enumerate(tables(document, "boards")))
    names = [board.name for board in boards]
    if not boards or len(boards) > MOST_BOARDS or len({*names, CENTRAL}) != len(names) + 1:
        raise DescriptionError(f"boards: expected 1 to {MOST_BOARDS} of different names, none of them {CENTRAL}")
    places = [CENTRAL, *names]
    links: dict[tuple[str, str], Way] = {}
    for count, table in enumerate(tables(document, "links")):
        where = f"links[{count}]"
        only(table, {"between", *KEYS}, where)
        between = table.get("between")
        if not isinstance(between, list) or len(between) != 2 or not all(place in places for place in between):
            raise DescriptionError(f"{where}.between: expected two of {', '.join(places)}, got {between!r}")
        a, b = between
        links[a, b] = links[b, a] = _way(table, where)
    otherwise = _way(document["otherwise"], "otherwise") if "otherwise" in document else None
    agents = document.get("agents", True)
    if not isinstance(agents, bool):
        raise DescriptionError(f"agents: expected true or false, got {agents!r}")
    seed = int(number(document, "seed", "the file"))
    return Description(boards, ways(places, links, otherwise), seed, agents, events_of(document, names))


def _board(table: Mapping[str, Any], where: str) -> BoardDescription:
    only(table, {"name", "cores", "memory_mb", "slots", "settings", "agent", "speed"}, where)
    name = table.get("name")
    if not isinstance(name, str) or not GATEWAY_NAME.fullmatch(name):
        raise DescriptionError(f"{where}.name: expected a gateway's name, got {name!r}")
    more = {key: table.get(key, {}) for key in ("settings", "agent")}
    for key, sections in more.items():
        if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
            raise DescriptionError(f"{where}.{key}: expected tables of a settings file, got {sections!r}")
    slots, memory = number(table, "slots", where), number(table, "memory_mb", where)
    speed = number(table, "speed", where, 1.0)
    if not speed:
        raise DescriptionError(f"{where}.speed: expected a number above 0, got {table['speed']!r}")
    return BoardDescription(name, number(table, "cores", where), int(memory), int(slots), **more, speed=speed)


def _way(table: Any, where: str) -> Way:
    if not isinstance(table, dict):
        raise DescriptionError(f"{where}: expected a table, got {table!r}")
    only(table, {"between", *KEYS}, where)
    loss = number(table, "loss", where)
    if loss > 1:
        raise DescriptionError(f"{where}.loss: expected 0 to 1, got {loss}")
    return Way(
        number(table, "delay_ms", where) / 1000,
        number(table, "jitter_ms", where) / 1000,
        loss,
        number(table, "mbit_s", where) * 125_000,
        int(number(table, "queue_kb", where, Way().queue_bytes / 1024) * 1024),
    )
