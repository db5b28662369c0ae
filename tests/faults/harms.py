"""Harms done to the files of a gateway, and what is lost and doubled by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.publisher import Difference
from tests.integration.harms import HARMS, dropped, keep, messages_said

BY_NAME = {harm.__name__: harm for harm in HARMS}


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

    def harm(self, file_name: str, how: str, seed: int, data: Path, status: Mapping[str, Any]) -> str:
        """Of a gateway that is down; `status`: its last one."""
        self._count(status)
        self._times += 1
        now = self.folder.with_name(f"{self.folder.name}-{self._times}")
        keep(data, now)
        file = data / file_name
        if not file.exists() or (how == "yesterdays" and not (self.folder / file_name).exists()):
            self.folder = now
            return f"killed; there is no {file_name}"
        BY_NAME[how](file, self.folder, seed)
        self.folder = now
        return f"killed; {file_name}: {how}"

    def _count(self, status: Mapping[str, Any]) -> None:
        self.dropped += dropped(status, "no flow takes it") + status["ingest"]["ambiguous"]
        self.repeated += status["ingest"]["perhaps_repeated"]

    def problems(self, status: Mapping[str, Any], log: str, found: Difference, texts: list[str]) -> list[str]:
        """Of a seed that is over. `texts`: of the table `gaps`."""
        self._count(status)
        said = messages_said(texts)
        wrong = []
        if found.lost > said + self.dropped:
            wrong.append(f"lost {found.lost}, and {said} were said, {self.dropped} counted as dropped: {texts}")
        # An epoch that the database never had is kept, since nothing makes its results again.
        if found.doubled > self.repeated and not any("may count twice" in text for text in texts):
            wrong.append(f"doubled {found.doubled}, and {self.repeated} were counted as perhaps repeated")
        wrong += [f"not in the log: {text}" for text in set(texts) if text.partition(";")[0] not in log]
        return wrong
