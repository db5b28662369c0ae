"""Secrets that this machine's settings and key files hold, so that texts can be searched for them."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from edgert.cli.diagnostics.redaction import named_secrets, secrets_in
from edgert.core.config import SettingEntry, entries
from edgert.core.settings.board import BoardSettings
from edgert.core.settings.folders import data_folder
from edgert.core.settings.programs import PROGRAMS

FOLDERS: Final = ("/etc/edgert", "/var/edgert", "/run/edgert-agent-key", "/run/credentials")
"""Folders of settings and keys."""
MOST_FILES: Final = 500
MOST_BYTES: Final = 65_536
"""A larger file is no key file."""
ENTRIES: Final = tuple(entry for cls in (*PROGRAMS.values(), BoardSettings) for entry in entries(cls))


class KnownSecrets:
    """Secrets of settings files, of environments, and of the files that these name."""

    def __init__(self, configs: Iterable[Path], environments: Iterable[Mapping[str, str]]) -> None:
        """`configs`: settings files, beside those in `FOLDERS`."""
        self.found: set[str] = set()
        self.unread: dict[str, str] = {}
        """Files that may hold secrets and cannot be read, with the reason."""
        for path in configs:
            self._take_settings(path)
        for path in self._in_folders():
            if path.suffix == ".toml":
                self._take_settings(path)
            else:
                self.found |= secrets_in(self._text(path))
        for env in environments:
            self._default_key(data_folder(env, os.geteuid() == 0))
            for entry in ENTRIES:
                self._take(entry, env.get(entry.variable, ""))

    def _in_folders(self) -> list[Path]:
        """Settings files, and files that not everybody may read."""
        found = []
        for folder in FOLDERS:
            for inner, _, names in os.walk(folder, onerror=self._not_read):
                found += [path for path in (Path(inner, name) for name in names) if self._may_hold_secrets(path)]
        if len(found) > MOST_FILES:
            self.unread["further files"] = f"{len(found) - MOST_FILES} were not read"
        return found[:MOST_FILES]

    def _may_hold_secrets(self, path: Path) -> bool:
        try:
            about = path.stat()
        except OSError as error:
            self._not_read(error)
            return False
        private = not about.st_mode & stat.S_IROTH and about.st_size <= MOST_BYTES
        return stat.S_ISREG(about.st_mode) and (private or path.suffix == ".toml")

    def _take_settings(self, path: Path) -> None:
        text = self._text(path)
        self.found |= named_secrets(text)
        for entry, value in _values(text):
            self._take(entry, value)

    def _take(self, entry: SettingEntry, value: str) -> None:
        if entry.about.secret:
            self.found |= secrets_in(value)
        elif entry.about.secret_file and value:
            if "/" not in value and not os.path.exists(value):  # a password where the path of its file belongs
                self.found.add(value)
            self.found |= secrets_in(self._text(Path(value)))
        elif entry.name == "data_dir" and value:
            self._default_key(value)

    def _default_key(self, folder: str) -> None:
        self.found |= secrets_in(self._text(Path(folder, "fleet.key"), may_be_missing=True))

    def _text(self, path: Path, may_be_missing: bool = False) -> str:
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would not end
                raise OSError(0, "expected a file, got something else", str(path))
            with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
                return file.read(MOST_BYTES)
        except (OSError, ValueError) as error:
            if not (may_be_missing and isinstance(error, FileNotFoundError)):
                self.unread[str(path)] = getattr(error, "strerror", None) or str(error)
            return ""

    def _not_read(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self.unread[str(error.filename)] = error.strerror or str(error)


def _values(text: str) -> Iterator[tuple[SettingEntry, str]]:
    """Settings that are texts; of a file that is no TOML, those whose name and value stand in one line."""
    try:
        document: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        for entry in ENTRIES:
            for found in re.finditer(rf"""\b{entry.name}["']?\s*=\s*["']([^"'\n]+)""", text):
                yield entry, found[1]
        return
    for entry in ENTRIES:
        table = document.get(entry.section)
        if isinstance(table, dict) and isinstance(value := table.get(entry.name), str):
            yield entry, value
