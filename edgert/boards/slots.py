"""An update of a board with two slots: what is noted before the new slot starts, and when the new slot counts as good.

Pure: observations in, a verdict out. The files and the update client are in `edgert.cli.board.slots`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from edgert.core.text.counted import counted

SLOTS: Final = ("A", "B")
OUTBOX: Final = "outbox"
RESTARTS: Final = 5
"""A service that was started so often again does not come up."""
SlotVerdict = Literal["good", "bad"]


@dataclass(frozen=True, slots=True)
class Pending:
    """An update that the board has not confirmed."""

    source: str
    """Slot that ran when the update was installed."""
    target: str
    version: str
    """Version of the bundle."""
    before: tuple[str, ...] = ()
    """Parts and services that did not do their work then; the update is not to blame for them."""
    flows: tuple[str, ...] = ()
    """Flows that were there then."""
    request: str = ""
    """`UpdateRequest.id`; empty for an update that was begun on the board itself."""
    url: str = ""
    """Address of the bundle; for a file its path."""
    written: bool = False
    """False while the bundle is written to the slot: the board does not start that slot yet."""

    def state(self, slot: str) -> str:
        """Returns how far the update is, for people, on a board that runs slot `slot`."""
        if slot == self.target:
            return f"on trial: version {self.version} in slot {self.target}"
        if self.written:
            return f"installed: version {self.version} in slot {self.target}, which runs from the next start on"
        return f"being written: version {self.version} to slot {self.target}"

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
        before, flows = (tuple(map(str, plain.get(name, ()))) for name in ("before", "flows"))
        request, url = (str(plain.get(name, "")) for name in ("request", "url"))
        found = Pending(plain["source"], plain["target"], str(plain["version"]), before, flows, request, url)
        found = replace(found, written=plain.get("written") is True)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if found.source in SLOTS and found.target in SLOTS else None


def part(condition: Mapping[str, Any]) -> str:
    """The name of a part of the gateway, as `sensors` or `flow counts`."""
    if condition["part"] == "central" and condition.get("state") == "no collector":
        return OUTBOX
    return f"{condition['part']} {condition['name']}".rstrip()


def bad_parts(status: Mapping[str, Any]) -> dict[str, str]:
    """Part -> reason, for the parts of a gateway that do not do their work: its brokers, flows, outbox, database. A
    broker that is away counts at once, and so does an outbox of which nothing has been acknowledged since the start."""
    bad = (one for one in status["health"]["parts"] if one["level"] == "bad" or one.get("state") == "disconnected")
    found = {part(one): str(one["text"]) for one in bad}
    central = status.get("central", {})
    if (rows := central.get("outbox_rows", 0)) and not _drains(central):
        found.setdefault(OUTBOX, f"{counted(rows, 'row')} in the outbox, and none was acknowledged yet")
    return found


def parts_before(status: Mapping[str, Any]) -> list[str]:
    """The parts for which an update is not to blame. An outbox counts only where it was seen to drain."""
    return sorted({*bad_parts(status), *([] if _drains(status.get("central", {})) else [OUTBOX])})


def flows_of(status: Mapping[str, Any]) -> list[str]:
    """The names of a gateway's flows."""
    return [str(flow["name"]) for flow in status.get("flows", ())]


def _drains(central: Mapping[str, Any]) -> bool:
    return central.get("last_ack_age_s") is not None


def faults(
    status: Mapping[str, Any] | str, units: Iterable[Unit], before: Iterable[str], flows: Iterable[str] = ()
) -> list[str]:
    """The reasons why a system is worse than the one `before`, which had `flows`. `status`: the gateway's, or why there
    is none."""
    known = set(before)
    found = [
        f"{unit.name} does not come up: {unit.state}, {unit.restarts} restarts, {unit.result}"
        for unit in lost(units, known)
    ]
    if isinstance(status, str):
        return [*found, f"the gateway does not answer: {status}"]
    there = set(flows_of(status))
    found += [f"flow {name} is not there any more" for name in flows if name not in there]
    return found + [reason for name, reason in bad_parts(status).items() if name not in known]


def hopeless(unit: Unit) -> bool:
    """True if waiting for the service gains nothing."""
    return unit.state == "failed" or unit.restarts >= RESTARTS


def lost(units: Iterable[Unit], before: Iterable[str]) -> list[Unit]:
    """The services that do not come up any more, and did before."""
    known = set(before)
    return [unit for unit in units if hopeless(unit) and unit.name not in known]


class Trial:
    """The new slot on trial: good once it had no fault for `steady_s`, bad after `within_s`."""

    def __init__(self, within_s: float, steady_s: float) -> None:
        self._within_s, self._steady_s = within_s, steady_s
        self._well_since: float | None = None

    def see(self, at_s: float, found: Iterable[str], hopeless: bool = False) -> SlotVerdict | None:
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
