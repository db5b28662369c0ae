"""An update of this board: a bundle is checked, written to the other slot, and noted; by hand or on request."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from edgert.boards.board_state import ATTEMPTS, UpdateProgress, may_pass, wait_before
from edgert.boards.requests import UpdateRequest
from edgert.boards.slots import Pending, flows_of, hopeless, parts_before
from edgert.cli.board import drain, requests, slots
from edgert.core.errors import EdgertError

OTHER: Final = {"A": "B", "B": "A"}
StatusOrReason = Callable[[], Mapping[str, Any] | str]
"""Returns the gateway's status, or why there is none."""


class NotInstalled(EdgertError):
    """An attempt ended without a new system. `event`: `refused` or `failed`; `again`: another one may succeed."""

    def __init__(self, event: str, version: str, why: str, *, again: bool = False) -> None:
        super().__init__(why)
        self.event, self.version, self.again = event, version, again


def install(request: UpdateRequest, status: StatusOrReason) -> str:
    """Writes the bundle to the slot that does not run. Returns its version; empty: the board runs that version already,
    which counts for a request only. Raises `NotInstalled`, which the caller records, and `EdgertError` where this board
    takes no update now."""
    slot, image = slots.slot(), slots.about()
    if why := _refusal(image):
        raise EdgertError(why)
    _tell("checking", request)
    try:
        version = slots.bundle_version(request.url)
    except EdgertError as error:
        raise NotInstalled("refused", "", str(error), again=may_pass(str(error))) from error
    if request.version not in ("", version):
        why = f"expected version {request.version} in {request.url}, got {version}"
        raise NotInstalled("refused", version, why)
    if request.id and version == image.get("version"):
        return ""
    update = _pending(slot, version, request, status())
    slots.note(update)
    try:
        slots.install(request.url, lambda percent: _tell("installing", request, version, percent))
    except EdgertError as error:
        slots.forget()
        raise NotInstalled("failed", version, str(error), again=may_pass(str(error))) from error
    slots.note(replace(update, written=True))
    record("installed", request, version, slot=OTHER[slot], before=image.get("version", ""))
    return version


def _refusal(image: Mapping[str, Any]) -> str:
    """Why this board takes no update now; empty: it does."""
    if os.geteuid():
        return "expected root: a slot is written"
    if not image.get("updates"):
        return f"board {image.get('board', 'unknown')} always starts slot A: update it by writing its card anew"
    if waiting := slots.pending():
        return f"version {waiting.version} in slot {waiting.target} is not confirmed yet; see: edgert board status"
    return ""


def _pending(slot: str, version: str, request: UpdateRequest, status: Mapping[str, Any] | str) -> Pending:
    before = [unit.name for unit in slots.units() if hopeless(unit)]
    flows: list[str] = []
    if not isinstance(status, str):
        before += parts_before(status)
        flows = flows_of(status)
    return Pending(slot, OTHER[slot], version, tuple(before), tuple(flows), request.id, request.url)


def record(event: str, request: UpdateRequest, version: str, why: str = "", **details: Any) -> None:
    """Writes an event of an update into the history, and tells it."""
    if request.id:
        details |= {"request": request.id, "bundle": request.url}
    if why:
        details["why"] = why
    slots.record(event, version=version, **details)
    requests.tell_last()


def _tell(phase: str, request: UpdateRequest, version: str = "", percent: int | None = None, why: str = "") -> None:
    requests.tell(UpdateProgress(phase, version, request.id, request.url, percent, why))


# -- on request


def requested(status: StatusOrReason) -> None:
    """Carries out the request that the gateway left, or one that was cut off, in a bounded number of attempts."""
    slots.slot()
    found = requests.accepted() or _taken()
    if found is None:
        print("no update was asked for", file=sys.stderr)
        return
    request, attempts = found
    version = _in_attempts(request, attempts, status)
    requests.done()
    if version:
        print(f"version {version} is in slot {OTHER[slots.slot()]}", file=sys.stderr)
        if request.drain:
            drain.drain()
        slots.restart()


def _taken() -> tuple[UpdateRequest, int] | None:
    try:
        request = requests.take_untrusted()
    except EdgertError as error:
        print(error, file=sys.stderr)
        return None
    return (request, 0) if request else None


def _in_attempts(request: UpdateRequest, attempts: int, status: StatusOrReason) -> str:
    """The version that is installed; empty: none, and the history says why."""
    why = "the board was switched off, or restarted, in the midst of it"
    while attempts < ATTEMPTS:
        attempts += 1
        if attempts > 1:
            _tell("waiting", request, why=f"attempt {attempts} of {ATTEMPTS}, after: {why}")
            time.sleep(wait_before(attempts))
        requests.accept(request, attempts)
        try:
            version = install(request, status)
        except EdgertError as error:
            why = str(error)
            print(f"attempt {attempts} of {ATTEMPTS}: {why}", file=sys.stderr, flush=True)
            found = error if isinstance(error, NotInstalled) else NotInstalled("refused", "", why)
            record("interrupted" if found.again else found.event, request, found.version, why)
            if not found.again:
                return ""
            continue
        if not version:
            record("current", request, str(slots.about().get("version", "")))
        return version
    record("failed", request, "", f"{ATTEMPTS} attempts; the last: {why}")
    return ""
