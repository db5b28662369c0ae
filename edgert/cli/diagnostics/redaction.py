"""Texts without secrets and payloads, for a file that others read (`edgert diagnostics`)."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

REDACTED: Final = "[redacted]"
CUT: Final = "[payload cut]"
SHORT: Final = 4
"""A shorter secret is replaced as a whole word only: as a part of words it would be everywhere."""
NAME: Final = re.compile(
    r"pass(?:word|wd|phrase)|psk|secret|token|credential|(?:api|private|access|fleet|mac)[_-]?key", re.I
)
"""Words in the names of secrets."""
OF_FILE: Final = re.compile(r"_(?:file|path|id|sha256)$", re.I)
_NAMED: Final = re.compile(
    rf"""((?:{NAME.pattern})["']?[ \t]*[=:][ \t]*)("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[^\s,;&}}"']+)""", re.I
)
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\⏎]*(?:-----END [A-Z0-9 ]*PRIVATE KEY-----)?"
)
_PEM_EDGE: Final = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----")
_USER: Final = re.compile(r'(://)[^\s"<>]{0,500}@')
_SAMPLE: Final = re.compile(
    r"(\b(?:got|it begins|e\.g\.) |, in (?=[{\[(])| times so far\): \w+\("
    r"|all of its last [^:\n]{0,99}: [^:\n]{0,99}: )[^\n]+"
)
"""Texts in front of a payload, or of a value of a row, in our logs and conditions, and the rest of the line."""
_RAISED: Final = re.compile(r"⏎ [\w.]+: [^⏎\n]*$", re.M)
"""The last line of a traceback. What it quotes may be a value of a row."""
_QUOTED: Final = re.compile(r"""'[^'\n]*'|"[^"\n]*\"""")
_SAMPLES: Final = frozenset(("beginning", "came", "dropping", "latest", "unusable"))
"""Parts of a status with values of rows."""


class Redactor:
    """Replaces secrets in texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """`secrets`: known ones; they are found in the forms of `forms`, too."""
        known = {form for secret in secrets for form in forms(secret)}
        self._forms = sorted((form for form in known if len(form) >= SHORT), key=len, reverse=True)
        self._words = [re.compile(rf"(?<!\w){form}(?!\w)") for form in known if len(form) < SHORT and form.isalnum()]

    def text(self, text: str) -> str:
        """`text` without known secrets, private keys (PEM), users and passwords of URLs, and the value of whatever has
        a name like `password`."""
        text = _PEM.sub(REDACTED, text)
        for form in self._forms:
            text = text.replace(form, REDACTED)
        for word in self._words:
            text = word.sub(REDACTED, text)
        return _NAMED.sub(_unnamed, _USER.sub(rf"\1{REDACTED}@", text))


def _unnamed(named: re.Match[str]) -> str:
    mark = named[2][0] if named[2][0] in "\"'" else ""  # JSON stays JSON
    return f"{named[1]}{mark}{REDACTED}{mark}"


def forms(secret: str) -> Iterator[str]:
    """The texts by which a secret may stand in a log or in JSON: itself, escaped, in base64 and in hexadecimal."""
    raw = secret.encode("utf-8", "surrogateescape")
    for text in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1],
                 quote(raw, safe="")):  # fmt: skip
        yield text
    if len(raw) < SHORT:
        return
    found = [raw]
    try:
        found += [base64.b64decode(secret, validate=True)]  # a line of a key file
    except (binascii.Error, ValueError):
        pass
    for content in found:
        yield from (content.hex(), content.hex().upper(), repr(content)[2:-1])
        for before, whole in enumerate((0, 2, 3)):  # base64 of a longer content, in which it is somewhere
            text = base64.b64encode(b"\0" * before + content).decode()[whole : (before + len(content)) * 8 // 6]
            yield from (text, text.replace("+", "-").replace("/", "_"))


def secrets_in(text: str) -> set[str]:
    """The secrets in the text of a file that holds some: its lines, and values with a name like `password`."""
    lines = {line.strip() for line in text.splitlines() if not _PEM_EDGE.fullmatch(line.strip())}
    return (lines | named_secrets(text)) - {""}


def named_secrets(text: str) -> set[str]:
    """The values with a name like `password` in the text of a settings file. A colon belongs to a remark there."""
    return {value.strip("\"'") for name, value in _NAMED.findall(text) if "=" in name} - {""}


def without_secrets(value: Any) -> Any:
    """A plain value in which whatever has a name like `password` has no value; the path of a file stays."""
    if isinstance(value, dict):
        return {name: REDACTED if value[name] and _is_secret(name) else without_secrets(value[name]) for name in value}
    return [without_secrets(item) for item in value] if isinstance(value, list | tuple) else value


def _is_secret(name: object) -> bool:
    return isinstance(name, str) and bool(NAME.search(name)) and not OF_FILE.search(name)


def without_payloads(value: Any) -> Any:
    """A text, or a plain value such as a gateway's status, without samples of payloads and values of rows."""
    if isinstance(value, dict):
        return {name: CUT if name in _SAMPLES else without_payloads(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_payloads(item) for item in value]
    if not isinstance(value, str):
        return value
    return _RAISED.sub(lambda raised: _QUOTED.sub(CUT, raised[0]), _SAMPLE.sub(rf"\1{CUT}", value))
