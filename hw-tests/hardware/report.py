"""The report of a board: what it is, and each check with its verdict and reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hardware.verdict import Answer, Verdict, documents, pairs

DESCRIPTION: Final = (
    "cat /etc/edgert/image.json 2>/dev/null; echo; echo model $(tr -d '\\0' </proc/device-tree/model 2>/dev/null ||"
    " cat /sys/class/dmi/id/product_name 2>/dev/null); echo kernel $(uname -sr);"
    " echo architecture $(uname -m); echo id $(sha256sum </etc/machine-id | cut -c 1-12)"
)
"""No serial number: of the machine's id, which is of this installation, a hash tells boards apart."""
ALL_GOOD, SOME_BAD, NOT_REACHED = 0, 1, 3
"""Exit statuses; 2: wrong arguments."""


def described(answer: Answer) -> dict[str, str]:
    """Returns what a board is, from the answer to `DESCRIPTION`; `unknown` for what it does not tell."""
    try:
        image = documents(answer.text)[0]
    except (ValueError, LookupError):
        image = {}
    told = dict(pairs(answer.text))
    found = {name: told.get(name, "unknown") for name in ("model", "id", "kernel", "architecture")}
    return {**found, "image": str(image.get("board", "none")), "version": str(image.get("version", "unknown"))}


@dataclass(slots=True)
class HardwareReport:
    """A report, to be read by people (`lines`) or programs (`plain`)."""

    board: Mapping[str, str]
    reached: str
    """How the board was reached."""
    time: str
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """Name of a check -> its verdict, in the order of the checks."""

    @property
    def status(self) -> int:
        """The exit status."""
        return SOME_BAD if any(verdict.level == "bad" for verdict in self.verdicts.values()) else ALL_GOOD

    def lines(self) -> Iterator[str]:
        yield f"board {self.board['model']}, id {self.board['id']}, by {self.reached}, {self.time}"
        yield f"image {self.board['image']}, version {self.board['version']}"
        yield f"kernel {self.board['kernel']}, {self.board['architecture']}"
        width = max(map(len, self.verdicts), default=0)
        for name, verdict in self.verdicts.items():
            yield f"  {verdict.level:7}  {name:{width}}  {verdict.why}"
        counts = {level: sum(v.level == level for v in self.verdicts.values()) for level in ("good", "bad", "skipped")}
        yield ", ".join(f"{count} {level}" for level, count in counts.items())

    def plain(self) -> dict[str, Any]:
        checks = [{"name": name, "verdict": v.level, "why": v.why} for name, v in self.verdicts.items()]
        about = {"board": dict(self.board), "reached": self.reached, "time": self.time}
        return {"result": "bad" if self.status else "good", **about, "checks": checks}


def not_reached(why: str, *, as_json: bool) -> str:
    """Returns the report of a board that cannot be reached: no check was made."""
    return json.dumps({"result": "skipped", "why": why, "checks": []}) if as_json else f"skipped: {why}"
