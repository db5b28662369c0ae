"""A laboratory: boards in network namespaces of their own, joined by a switch whose ways can be changed and cut."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agent.simulation.described.description import CENTRAL, Description
from agent.simulation.described.ways import DescriptionError, Way
from edgert.central.spark.die_with_parent import leashed
from tests.integration.boards import LinkedGateways
from tests.integration.rig import FLEET, ROOT
from tests.lab.board import AGENT_PORT, LINK_PORT, Board, Central, Place
from tests.lab.cgroups import remove_left_behind
from tests.lab.forwarding import hardware_address
from tests.lab.namespaces import Namespace
from tests.links.certificates import Authority

log = logging.getLogger(__name__)


class SwitchProcess:
    """The switch between namespaces, steered over its standard input. All descriptors of TAP interfaces are its own."""

    def __init__(
        self, namespaces: Mapping[str, Namespace], addresses: Mapping[str, str],
        ways: Mapping[tuple[str, str], Way], seed: int,
    ) -> None:  # fmt: skip
        self.ways = dict(ways)
        taps = {name: namespaces[name].add_tap(addresses[name], hardware_address(number))
                for number, name in enumerate(namespaces)}  # fmt: skip
        command = leashed([sys.executable, "-m", "tests.lab.switch", str(seed)])
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=list(taps.values()), cwd=ROOT
        )
        for tap in taps.values():
            os.close(tap)
        self._write({"ports": [[name, tap] for name, tap in taps.items()], "ways": _plain(self.ways)})
        self.figures()  # it runs

    def set(self, ways: Mapping[tuple[str, str], Way]) -> None:
        """Changes ways; returns when the switch has done so."""
        self.ways.update(ways)
        self._ask({"ways": _plain(ways)})

    def figures(self) -> dict[str, dict[str, int]]:
        """ "origin destination" → frames by what happened to them; "": of the switch as a whole."""
        return self._ask({})

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, dict[str, int]]:
        self._write(request)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"expected an answer of the switch, it ended with {self._process.wait()}")
        answer: dict[str, dict[str, int]] = json.loads(line)
        return answer

    def _write(self, document: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(document).encode() + b"\n")
        self._process.stdin.flush()


class Lab:
    """Made whole by `start`; `close` leaves nothing but files in `folder`. Processes have to be started from a thread
    that lives as long as they do: the kernel ends them with it."""

    def __init__(self, description: Description, folder: Path) -> None:
        self.description, self.folder = description, folder
        self.central: Central
        self.boards: dict[str, Board] = {}
        self.switch: SwitchProcess
        self._places: dict[str, Place] = {}
        self._closers: list[Any] = []

    @contextmanager
    def running(self) -> Iterator[Lab]:
        try:
            self.start()
            yield self
        finally:
            self.close()

    # -- life

    def start(self) -> None:
        """Returns when every gateway is ready and linked to the others. Raises `OSError` where this process may not
        make namespaces."""
        remove_left_behind()
        self.folder.mkdir(parents=True, exist_ok=True)
        addresses = {name: f"10.77.0.{number}" for number, name in enumerate(self.description.places, start=1)}
        self._make_places(addresses)
        namespaces = {name: place.namespace for name, place in self._places.items()}
        self.switch = SwitchProcess(namespaces, addresses, self.description.ways, self.description.seed)
        self._closers.append(self.switch.close)
        if self.description.agents:
            self._prepare_agents()
        for place in self._places.values():
            place.start()
        for board in self.boards.values():
            board.wait_ready()
        self.linked.link()

    def _make_places(self, addresses: Mapping[str, str]) -> None:
        authority = Authority(self.folder / "certificates")
        self.central = Central(CENTRAL, self.folder / CENTRAL, addresses[CENTRAL])
        self._add(self.central)
        for described in self.description.boards:
            name = described.name
            credentials = authority.issue(name, uri=f"edgert://{FLEET}/{name}")
            board = Board(described, self.folder / name, addresses[name], addresses[CENTRAL], credentials)
            self.boards[name] = board
            self._add(board)
            if board.unlimited:
                log.warning("board %s: %s", name, board.unlimited)
        links = {name: (board.address, LINK_PORT) for name, board in self.boards.items()}
        self.linked = LinkedGateways({name: board.gateway for name, board in self.boards.items()}, links)

    def _add(self, place: Place) -> None:
        self._places[place.name] = place
        self._closers.append(place.close)

    def _prepare_agents(self) -> None:
        key_file = self.folder / "fleet.key"
        command = [sys.executable, "-m", "edgert.cli.main", "fleet", "key", str(key_file)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        seeds = [f"{board.address}:{AGENT_PORT}" for board in list(self.boards.values())[:2]]
        for board in self.boards.values():
            board.prepare_agent(key_file, [seed for seed in seeds if not seed.startswith(f"{board.address}:")])

    def close(self) -> None:
        """Ends all processes."""
        while self._closers:
            self._closers.pop()()

    # -- changes

    def cut(self, a: str, b: str, one_way: bool = False) -> None:
        """Cuts the way from `a` to `b`, and the way back unless `one_way`."""
        self.change(a, b, one_way, cut=True)

    def heal(self, a: str = "", b: str = "") -> None:
        """Ends the cuts between two places, or all cuts."""
        if a and b:
            self.change(a, b, cut=False)
        else:
            self.switch.set({pair: replace(way, cut=False) for pair, way in self.switch.ways.items() if way.cut})

    def change(self, a: str, b: str, one_way: bool = False, **changes: Any) -> None:
        """Changes fields of `Way` from `a` to `b`, and back unless `one_way`."""
        for place in (a, b):
            if place not in self._places or a == b:
                raise DescriptionError(f"expected two of {', '.join(self._places)}, got {a} and {b}")
        pairs = [(a, b)] if one_way else [(a, b), (b, a)]
        self.switch.set({pair: replace(self.switch.ways[pair], **changes) for pair in pairs})

    def board(self, name: str) -> Board:
        """Raises `DescriptionError` for an unknown one."""
        if name not in self.boards:
            raise DescriptionError(f"expected one of {', '.join(self.boards)}, got {name}")
        return self.boards[name]

    def place(self, name: str) -> Place:
        """A board, or `CENTRAL`. Raises `DescriptionError` for an unknown one."""
        return self.central if name == CENTRAL else self.board(name)

    def kill(self, name: str) -> None:
        """Kills a board's gateway and agent (SIGKILL)."""
        self.board(name).kill()

    def start_board(self, name: str) -> None:
        """Starts them again; returns when the gateway is ready and knows where the others listen."""
        board = self.board(name)
        board.start_programs()
        board.wait_ready()
        self.linked.tell_peers(name)


def _plain(ways: Mapping[tuple[str, str], Way]) -> list[list[Any]]:
    return [[origin, destination, asdict(way)] for (origin, destination), way in ways.items()]
