"""An update of a board with two slots: what is noted before the new slot starts, and when the new slot counts as good.

Pure: observations in, a verdict out. The files and the update client are in `edgert.cli._slots`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

SLOTS: Final = ("A", "B")
RESTARTS: Final = 5
"""A service that was started so often again does not come up."""
Verdict = Literal["good", "bad"]


@dataclass(frozen=True, slots=True)
class Pending:
    """An update that the board has not confirmed."""

    source: str
    """Slot that ran when the update was installed."""
    target: str
    version: str
    """Of the bundle."""
    before: tuple[str, ...] = ()
    """Parts and services that did not do their work then; the update is not to blame for them."""

    def text(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Unit:
    """A service as systemd shows it."""

    name: str
    state: str
    """`ActiveState`."""
    restarts: int
    result: str = "success"


def booted(command_line: str) -> str:
    """The slot that the kernel's arguments name; empty for a system without slots."""
    for argument in command_line.split():
        name, _, value = argument.partition("=")
        if name == "edgert.slot" and value in SLOTS:
            return value
    return ""


def pending_untrusted(text: str) -> Pending | None:
    """The note of an update; None for a damaged one."""
    try:
        plain = json.loads(text)
        found = Pending(plain["source"], plain["target"], str(plain["version"]), tuple(map(str, plain["before"])))
    except (ValueError, KeyError, TypeError):
        return None
    return found if found.source in SLOTS and found.target in SLOTS else None


def part(condition: Mapping[str, Any]) -> str:
    """The name of a part of the gateway, as `sensors` or `flow counts`."""
    return f"{condition['part']} {condition['name']}".rstrip()


def bad_parts(status: Mapping[str, Any]) -> dict[str, str]:
    """Part -> reason, for the parts of a gateway that do not do their work: its brokers, flows, outbox, database."""
    return {part(found): found["text"] for found in status["health"]["parts"] if found["level"] == "bad"}


def faults(status: Mapping[str, Any] | str, units: Iterable[Unit], before: Iterable[str]) -> list[str]:
    """The reasons why a system is worse than the one `before`. `status`: the gateway's, or why there is none."""
    known = set(before)
    found = [f"{unit.name} does not come up: {_how(unit)}" for unit in lost(units, known)]
    if isinstance(status, str):
        return [*found, f"the gateway does not answer: {status}"]
    return found + [reason for name, reason in bad_parts(status).items() if name not in known]


def hopeless(unit: Unit) -> bool:
    """Nothing is gained by waiting for such a service."""
    return unit.state == "failed" or unit.restarts >= RESTARTS


def lost(units: Iterable[Unit], before: Iterable[str]) -> list[Unit]:
    """The services that do not come up any more, and did before."""
    known = set(before)
    return [unit for unit in units if hopeless(unit) and unit.name not in known]


def _how(unit: Unit) -> str:
    return f"{unit.state}, {unit.restarts} restarts, {unit.result}"


class Trial:
    """The new slot on trial: good once it had no fault for `steady_s`, bad after `within_s`."""

    def __init__(self, within_s: float, steady_s: float) -> None:
        self._within_s, self._steady_s = within_s, steady_s
        self._well_since: float | None = None

    def see(self, at_s: float, found: Iterable[str], hopeless: bool = False) -> Verdict | None:
        """`at_s` is the time since the trial began, `found` the faults now, `hopeless`: waiting gains nothing."""
        if any(found) or hopeless:
            self._well_since = None
        elif self._well_since is None:
            self._well_since = at_s
        if hopeless or (at_s >= self._within_s and self._well_since is None):
            return "bad"
        if self._well_since is not None and at_s - self._well_since >= self._steady_s:
            return "good"
        return None
