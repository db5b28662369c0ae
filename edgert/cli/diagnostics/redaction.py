"""Texts without secrets and payloads, for a file that others read (`edgert diagnostics`)."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

REDACTED: Final = "[redacted]"
CUT: Final = "[payload cut]"
SHORT: Final = 4
"""A shorter secret is replaced as a whole word only: as a part of words it would be everywhere."""
NAME: Final = re.compile(
    r"pass(?:word|wd|phrase)|psk|secret|token|credential|(?:api|private|access|fleet|mac)[_-]?key"
    r"|authorization|(?<![a-z])(?:bearer|pwd|sig)(?![a-z])",
    re.I,
)
"""Words in the names of secrets."""
OF_FILE: Final = re.compile(r"_(?:file|path|id|sha256)$", re.I)
_NAMED: Final = re.compile(
    rf"""((?:{NAME.pattern})\\*["']?[ \t]*[=:][ \t]*)(?!\s|null\b)("""
    r"""[bru]{0,2}(?:("{3}|'{3})(?s:.)*?\3|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(\\+["'])(?:(?!\4)(?:\\+.|[^\\\n]))*\4"""  # in JSON in JSON
    r"""|\\*["']?(?:[^"'\\\n⏎]|\\[^"'\n])+)""",  # no quotes, or no end of them: the rest of the line
    re.I,
)
_MARK: Final = re.compile(r"""[bru]{0,2}("{3}|'{3}|\\*["'])""", re.I)
_PEM: Final = re.compile(
    r"(?:\A|-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----)(?:(?!-----BEGIN ).){0,20000}?-----END [A-Z0-9 ]*PRIVATE KEY-----"
    r"|-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\⏎]*(?:[^\n]{0,200}?[A-Za-z0-9+/=]{30,}\n?){0,100}",
    re.S,
)
"""A private key, also where a journal puts a time in front of each line, and where its begin or its end is missing."""
_PEM_EDGE: Final = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----")
_URL: Final = re.compile(r"://[^\s<>]*")
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
        words = [form for form in known if len(form) < SHORT and any(map(str.isalnum, form))]
        self._words = [re.compile(rf"(?<!\w){re.escape(word)}(?!\w)") for word in words]

    def text(self, text: str) -> str:
        """`text` without known secrets, private keys (PEM), users and passwords of URLs, and the value of whatever has
        a name like `password`."""
        text = _PEM.sub(REDACTED, text)
        for form in self._forms:
            text = text.replace(form, REDACTED)
        for word in self._words:
            text = word.sub(REDACTED, text)
        return _NAMED.sub(_unnamed, _URL.sub(_without_user, text))


def _unnamed(named: re.Match[str]) -> str:
    begin = _MARK.match(named[2])
    before, mark = (begin[0], begin[1]) if begin else ("", "")
    return f"{named[1]}{before}{REDACTED}{mark if named[2][len(before) :].endswith(mark) else ''}"  # JSON stays JSON


def _without_user(url: re.Match[str]) -> str:
    return f"://{REDACTED}{url[0][at:]}" if (at := url[0].rfind("@")) >= 0 else url[0]


def forms(secret: str) -> Iterator[str]:
    """The texts by which a secret may stand in a log, in JSON, a URL or HTML: itself, escaped, in base64 and in
    hexadecimal."""
    raw = secret.encode("utf-8", "surrogateescape")
    yield from (secret, repr(secret)[1:-1], html.escape(secret), html.escape(secret, quote=False))
    for is_ascii in (True, False):
        text = json.dumps(secret, ensure_ascii=is_ascii)[1:-1]
        yield from (text, text.replace("/", r"\/"), json.dumps(text, ensure_ascii=is_ascii)[1:-1])
        yield re.sub(r"\\u[0-9a-f]{4}", lambda code: rf"\u{code[0][2:].upper()}", text)
    for text in (quote(raw, safe=""), quote(raw), quote_plus(raw), quote_plus(raw, safe="/")):
        yield from (text, re.sub("%..", lambda code: code[0].lower(), text))
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
    found = set()
    for name, value, *_ in _NAMED.findall(text):
        if "=" in name:
            begin = _MARK.match(value)
            found |= {value[begin.end() :].strip("\"'")} if begin else {value.strip(), re.split(r"[\s,;&}]", value)[0]}
    return found - {""}


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
