"""One-time tokens by which boards enrol: made by the fleet's owner, who keeps a token's hash alone.

tokens/<SHA-256 of the token>.json in the CA's folder: whose it is, its end, and the key that it was used for.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from edgert.boards import files
from edgert.boards.certificates import PublicKey
from edgert.core.errors import EdgertError


@dataclass(frozen=True, slots=True)
class Token:
    """The record of a token."""

    name: str
    """The board that may use it."""
    ends: float
    """Seconds since 1970."""
    key: str = ""
    """SHA-256 of the public key that it was used for; empty: it was not used. That key alone may ask again, as an
    answer may be lost."""
    refused: int = 0
    """Attempts to use it for another board or key, or too late."""

    def state(self, now: datetime) -> str:
        if self.key:
            return "used"
        return "waits" if now.timestamp() < self.ends else "expired"


class Tokens:
    """To be held with `files.locked` on the CA's folder."""

    def __init__(self, ca: Path) -> None:
        self._folder = ca / "tokens"

    def make(self, name: str, ends: datetime) -> str:
        """A new token for a board. Raises `EdgertError`."""
        token = secrets.token_urlsafe(32)
        files.folder(self._folder)
        self._write(self._path(token), Token(name, ends.timestamp()))
        return token

    def all(self) -> list[Token]:
        """Raises `EdgertError`."""
        return sorted((_read(path) for path in self._folder.glob("*.json")), key=lambda token: (token.name, token.ends))

    def redeem(self, token: str, name: str, key: PublicKey, now: datetime) -> None:
        """Uses a token for a board's key, for good. Raises `EdgertError` where it is not good for that."""
        path = self._path(token)
        if not path.exists():
            raise EdgertError("expected a token of this fleet, got another")
        known = _read(path)
        public = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        digest = hashlib.sha256(public).hexdigest()
        why = ""
        if known.key not in ("", digest):
            why = f"the token of {known.name} was used before: if not by that board, revoke {known.name}"
        elif known.name != name:
            why = f"the token of {known.name} was shown for {name}"
        elif now.timestamp() >= known.ends:
            why = f"the token of {name} ended at {datetime.fromtimestamp(known.ends, UTC):%Y-%m-%d %H:%M} UTC"
        if why:
            self._write(path, replace(known, refused=known.refused + 1))
            raise EdgertError(why)
        if not known.key:
            self._write(path, replace(known, key=digest))

    def _path(self, token: str) -> Path:
        return self._folder / f"{hashlib.sha256(token.encode()).hexdigest()}.json"

    def _write(self, path: Path, token: Token) -> None:
        files.write(path, json.dumps(asdict(token)).encode() + b"\n")


def _read(path: Path) -> Token:
    try:
        return Token(**json.loads(files.read(path, "a token's record")))
    except (ValueError, TypeError) as error:
        raise files.FileError(f"{path}: expected a token's record as JSON: {error}") from None
