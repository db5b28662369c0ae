"""The request for an update of a board: it comes over MQTT to the gateway, which leaves it for the unit that installs.

Pure. Both ends check it: the gateway, since anybody may write to the broker, and the unit, since it is root and the
gateway is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from edgert.core.errors import DocumentError, EdgertError, Problem, show

MOST_BYTES: Final = 4096
"""Largest request, as written."""
MOST_URL: Final = 2000
URL: Final = re.compile(
    r"https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
    r"/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*"
)
"""Without a name and a password, which the histories of boards would show."""
VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~_-]{0,127}")
ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """One board is to install one bundle."""

    id: str
    """Made by the one who asks; it comes back in all that the board tells about this update."""
    url: str
    """Address of the bundle: http or https."""
    version: str = ""
    """Version that the bundle has to have; empty: any."""
    drain: bool = False
    """True if the board's operators move to other boards before it restarts."""

    def text(self) -> str:
        return json.dumps(asdict(self))


def request_untrusted(plain: Mapping[str, Any]) -> UpdateRequest:
    """The request in a plain document. Raises `DocumentError` with every fault."""
    problems = [
        Problem(show(name), "one of id, url, version, drain", show(plain[name]))
        for name in plain
        if name not in ("id", "url", "version", "drain")
    ]
    texts = {}
    for name, pattern, expected in (
        ("id", ID, "1 to 64 letters, digits, '_' and '-'"),
        ("url", URL, f"http://HOST/PATH or https://HOST/PATH without a user, {MOST_URL} characters at most"),
        ("version", VERSION, "letters, digits and .+~_-, 128 characters at most"),
    ):
        value = plain.get(name, "")
        texts[name] = value if isinstance(value, str) else ""
        if name == "version" and value == "":
            continue
        if not isinstance(value, str) or len(value) > MOST_URL or not pattern.fullmatch(value):
            problems.append(Problem(name, expected, show(value)))
    drain = plain.get("drain", False)
    if not isinstance(drain, bool):
        problems.append(Problem("drain", "true or false", show(drain)))
    if problems:
        raise DocumentError("update", problems)
    return UpdateRequest(**texts, drain=drain)


def read_request_untrusted(content: bytes) -> UpdateRequest:
    """The request in a file. Raises `EdgertError`."""
    if len(content) > MOST_BYTES:
        raise EdgertError(f"update: expected a request of at most {MOST_BYTES} bytes, got more")
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError):
        raise EdgertError(f"update: expected a request as JSON, got {show(content)}") from None
    if not isinstance(plain, dict):
        raise EdgertError(f"update: expected a request as a JSON object, got {show(plain)}")
    return request_untrusted(plain)
