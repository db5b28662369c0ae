"""A board's slots and its last update, as the board tells others: root writes it, the gateway publishes it.

Pure: observations in, a state out. `docs/internals/appliance.md` has the phases of an update.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from edgert.boards.slots import Pending

MOST_BYTES: Final = 16_384
MOST_WHY: Final = 1_000
"""Characters of a reason that are told."""
UNDER_WAY: Final = ("checking", "installing", "waiting", "installed", "on trial")
"""`waiting`: for another attempt, after one that was cut off. `installed`: for the restart."""
GOOD: Final = ("confirmed", "current")
"""`current`: the board runs that version already."""
BAD: Final = ("refused", "failed", "rolled back")
"""`refused`: before anything was written. `failed`: while the slot was written; the old slot runs on."""
DECIDED: Final = (*GOOD, *BAD)
PHASES: Final = (*UNDER_WAY, *DECIDED)
OF_EVENT: Final = {**{phase: phase for phase in (*DECIDED, "installed")}, "interrupted": "waiting"}
"""Event of a board's history -> phase."""
ATTEMPTS: Final = 5
"""An installation that is cut off is begun so often."""
FIRST_WAIT_S: Final = 30.0
FINAL: Final = re.compile(
    r"signature|certificate|compatible|keyring|bundle format|HTTP error code 4[0-9][0-9]|unauthorized|no such file"
    r"|range requests not supported|too small",
    re.IGNORECASE,
)
"""In what RAUC says of a bundle that another attempt would not make better."""


@dataclass(frozen=True, slots=True)
class UpdateProgress:
    """How far an update is, or what became of it."""

    phase: str
    """One of `PHASES`."""
    version: str = ""
    """Version of the bundle; empty while it is not known."""
    request: str = ""
    """`UpdateRequest.id`; empty for an update that was begun on the board itself."""
    url: str = ""
    percent: int | None = None
    """Progress of the installation, in percent."""
    why: str = ""

    def __str__(self) -> str:
        percent = f" {self.percent} %" if self.percent is not None else ""
        return f"{self.phase}{percent}" + (f": {self.why}" if self.why else "")

    @property
    def decided(self) -> bool:
        return self.phase in DECIDED


@dataclass(frozen=True, slots=True)
class BoardState:
    """A board's slot, version and last update, as the board tells them."""

    slot: str
    version: str
    """Version that runs."""
    refuses: str = ""
    """Why the board takes no updates; empty: it does."""
    update: UpdateProgress | None = None
    """The last one."""

    def text(self) -> str:
        return json.dumps(asdict(self))


def state_untrusted(content: bytes) -> BoardState | None:
    """A board's state from its file or from the broker; None for what is none."""
    if len(content) > MOST_BYTES:
        return None
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(plain, dict) or not all(isinstance(plain.get(name), str) for name in ("slot", "version")):
        return None
    refuses, update = plain.get("refuses", ""), plain.get("update")
    if not isinstance(refuses, str):
        return None
    return BoardState(plain["slot"], plain["version"], refuses, _progress(update) if update is not None else None)


def _progress(plain: Any) -> UpdateProgress | None:
    if not isinstance(plain, Mapping) or plain.get("phase") not in PHASES:
        return None
    percent = plain.get("percent")
    if type(percent) is not int or not 0 <= percent <= 100:
        percent = None
    return _of(str(plain["phase"]), plain, plain.get("url"), percent)


def after_start(events: Sequence[Mapping[str, Any]], pending: Pending | None, slot: str) -> UpdateProgress | None:
    """The last update, from the board's history, when the board has started."""
    if pending is not None and pending.target == slot:
        return UpdateProgress("on trial", pending.version, pending.request, pending.url)
    for event in reversed(events):
        if (phase := OF_EVENT.get(str(event.get("event")))) is not None:
            return _of(phase, event, event.get("bundle"))
    return None


def _of(phase: str, plain: Mapping[str, Any], url: object, percent: int | None = None) -> UpdateProgress:
    version, request, why = (str(plain.get(name) or "")[:MOST_WHY] for name in ("version", "request", "why"))
    return UpdateProgress(phase, version, request, str(url or ""), percent, why)


def wait_before(attempt: int) -> float:
    """Seconds before attempt 2, 3, ..."""
    return FIRST_WAIT_S * 2.0 ** (attempt - 2)


def may_pass(why: str) -> bool:
    """True if an attempt that ended so may succeed later: the connection or the server was away."""
    return not FINAL.search(why)
