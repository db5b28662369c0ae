"""The stored files that a start needs: each is checked, and a damaged one is set aside and made anew from its copy.

A card that wears out, or a power cut at the wrong moment, leaves a file empty, full of zeros, or cut short. A program
that needs it would fail at each start. `mend` runs before all of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from edgert.core.config import entries, parse
from edgert.core.errors import DocumentError
from edgert.core.settings.agent import AgentSettings
from edgert.core.settings.board import HOSTNAME, SERVICE, BoardSettings
from edgert.core.settings.gateway import GatewaySettings
from provisioning.document import IDENTITY, SERVICE_FILE, WIFI_FILE

KEPT: Final = "kept"
"""Folder of the copies."""
DAMAGED: Final = "damaged"
"""Folder of what was set aside, the last one of each name."""
NO_TEXT: Final = "\0"
PAIR: Final = frozenset((IDENTITY["certificate"], IDENTITY["key"]))
"""Files that are of no use but together."""
Check = Callable[[str], bool]


def _settings(cls: type[GatewaySettings | AgentSettings]) -> Check:
    def sound(text: str) -> bool:
        try:
            parse(cls, text, {})
        except DocumentError:
            return False
        return True

    return sound


def _setting(path: str) -> Check:
    """A file that holds a setting of the provisioning file."""
    [entry] = [entry for entry in entries(BoardSettings) if entry.path == path]
    return lambda text: bool(text) and (entry.about.check is None or entry.about.check(text) is None)


CHECKS: Final[Mapping[str, Check]] = {
    "gateway.toml": _settings(GatewaySettings),
    "agent.toml": _settings(AgentSettings),
    "mosquitto/listener.conf": lambda text: any(line.startswith("listener ") for line in text.splitlines()),
    "mosquitto/sensors.acl": lambda text: text.startswith("topic "),
    "network/lan.network": lambda text: not text or text.startswith("[Match]"),
    "network/hostname": lambda text: bool(HOSTNAME.fullmatch(text.strip())),
}
"""Files that every board has, and whether their text can be used."""
OPTIONAL: Final[Mapping[str, Check]] = {
    WIFI_FILE: lambda text: "network={" in text,
    SERVICE_FILE: lambda text: bool(SERVICE.fullmatch(text.strip())),
    **{file: _setting(f"identity.{name}") for name, file in IDENTITY.items()},
}
"""Files that a board has if its provisioning file said so. Keys for SSH are not among them: who removed one by hand
does not get it back."""
ALL: Final[Mapping[str, Check]] = {**CHECKS, **OPTIONAL}


def mend(stored: Path, defaults: Mapping[str, str], write: Callable[[str, str], None]) -> list[str]:
    """Mends the files below `stored`; returns a sentence about each that was damaged or missing.

    `defaults` is used where the copy is damaged, too. `write(name, text)` writes a file below `stored`.
    """
    if not (stored / "gateway.toml").exists() and not (stored / KEPT).exists():
        return []  # a board that was never provisioned
    kept = {name: _text(stored / KEPT / name) for name in ALL}
    found = {name: _text(stored / name) for name in kept}
    bad = [name for name in kept if not _sound(name, found[name], kept[name])]
    if PAIR & set(bad):
        bad += sorted(PAIR - set(bad))
    said = []
    for name in bad:
        text, whence = kept[name], "its copy"
        if text is None or not ALL[name](text):
            text, whence = defaults.get(name), "the defaults"
        if text is None:
            said.append(f"{name} is damaged, and there is no copy: provision the board again")
            continue
        _set_aside(stored, name)
        write(name, text)
        said.append(f"{name} was damaged or missing, and is made anew from {whence}")
    for name, text in found.items():
        if name not in bad and text is not None and text != kept[name]:
            write(f"{KEPT}/{name}", text)
    return said


def _sound(name: str, text: str | None, kept: str | None) -> bool:
    """A missing optional file is sound where there is no copy, an empty one where the copy is empty, too. Of two equal
    texts none is damaged, though a system that was gone back to may not know a setting in them."""
    if text is None:
        return name in OPTIONAL and kept is None
    if text == kept:
        return text != NO_TEXT
    if not text and kept:
        return False
    return ALL[name](text)


def _text(path: Path) -> str | None:
    """Returns None for a file that is not there or cannot be read; damaged bytes as a text that no check takes."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        return None
    return NO_TEXT if NO_TEXT in text or "\ufffd" in text else text


def _set_aside(stored: Path, name: str) -> None:
    if (stored / name).exists():
        aside = stored / DAMAGED / name
        aside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (stored / name).replace(aside)


def id_of(stored: Path) -> str:
    """The gateway's id in any file that still has it: a board keeps its name where its settings are damaged."""
    for name in ("gateway.toml", f"{KEPT}/gateway.toml", "agent.toml", f"{KEPT}/agent.toml"):
        try:
            found = tomllib.loads(_text(stored / name) or "").get("gateway", {}).get("id")
        except (tomllib.TOMLDecodeError, AttributeError):
            continue
        if isinstance(found, str) and found:
            return found
    hostname = (_text(stored / "network/hostname") or "").strip()
    return hostname if HOSTNAME.fullmatch(hostname) else ""
