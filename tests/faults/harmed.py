"""A file of the gateway's data folder is deleted, emptied, cut, flipped or old: no more is missing than is said."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Self

from tests.faults.fault import DOWN, Fault, seconds
from tests.faults.publisher import Difference
from tests.integration.harms import FILES, HARMS, dropped, keep, messages_said

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.faults.path import WholePath

BY_NAME = {harm.__name__: harm for harm in HARMS}
FIRST_S = 2.0
"""After its start the gateway counts messages that no flow takes yet, and writes its mark."""
READY_S = 60.0
"""A busy machine needs longer for a start."""


@dataclass(frozen=True, slots=True)
class HarmFile(Fault):
    """While the gateway is down, as after a power cut."""

    file: str
    how: str
    seed: int
    name = "harm a file"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        file = draw.choice((*FILES, *("gateway.db", "gateway.db-wal") * 3))
        return cls(seconds(draw, 0.1, 1.0), file, draw.choice(list(BY_NAME)), draw.getrandbits(32))

    def inject(self, path: WholePath) -> str:
        path.begin("gateway")
        status = path.daemon.wait(lambda s: s["flows"] and s["uptime_s"] > FIRST_S, "its flow", READY_S)
        if not path.end("gateway"):
            return DOWN
        return path.harms.harm(self, path.daemon.data, status)

    def heal(self, path: WholePath) -> None:
        path.begin("gateway")


@dataclass(slots=True)
class Harms:
    """Of one seed."""

    folder: Path
    """With an earlier state of the files."""
    dropped: int = 0
    """Messages that the gateway's processes that are over had counted as dropped."""
    repeated: int = 0
    """And those that they took as new, though they may have been before."""
    _times: int = 0

    def harm(self, fault: HarmFile, data: Path, status: Mapping[str, Any]) -> str:
        """Of a gateway that is down; `status`: its last one."""
        self._count(status)
        self._times += 1
        now = self.folder.with_name(f"{self.folder.name}-{self._times}")
        keep(data, now)
        file = data / fault.file
        if not file.exists() or (fault.how == "yesterdays" and not (self.folder / fault.file).exists()):
            self.folder = now
            return f"killed; there is no {fault.file}"
        BY_NAME[fault.how](file, self.folder, fault.seed)
        self.folder = now
        return f"killed; {fault.file}: {fault.how}"

    def _count(self, status: Mapping[str, Any]) -> None:
        self.dropped += dropped(status, "no flow takes it") + status["ingest"]["ambiguous"]
        self.repeated += status["ingest"]["perhaps_repeated"]

    def problems(self, path: WholePath, found: Difference, texts: list[str]) -> list[str]:
        """Of a seed that is over. `texts`: of the table `gaps`."""
        self._count(path.status())
        said = messages_said(texts)
        wrong = []
        if found.lost > said + self.dropped:
            wrong.append(f"lost {found.lost}, and {said} were said, {self.dropped} counted as dropped: {texts}")
        # An epoch that the database never had is kept, since nothing makes its results again.
        if found.doubled > self.repeated and not any("may count twice" in text for text in texts):
            wrong.append(f"doubled {found.doubled}, and {self.repeated} were counted as perhaps repeated")
        log = path.daemon.text()
        wrong += [f"not in the log: {text}" for text in set(texts) if text.partition(";")[0] not in log]
        return wrong
