"""The gateway's own certificate: when it ends, and whether its renewal failed."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from edgert.core.settings.gateway import GatewaySettings

RENEWAL: Final = "/run/edgert-renewal/state.json"
"""File in which the board's renewal (provisioning/renewal.py) tells of its last attempt."""
MOST_BYTES: Final = 4096
AGAIN_S: Final = 60.0
"""A certificate that could not be read is looked at again after so long: the clock may have been wrong."""


class OwnCertificate:
    """The certificate of links, or else that which the central broker is shown."""

    def __init__(
        self, settings: GatewaySettings, renewal: str = RENEWAL, wall: Callable[[], float] = time.time
    ) -> None:
        links, central = settings.links, settings.central
        self._files = (links.certificate, links.key) if links.certificate else (central.cert_file, central.key_file)
        self._renewal, self._wall = Path(renewal), wall
        self._stamp: tuple[int, int] | None = None
        self._looked_at = 0.0
        self._life: tuple[float, float] | None = None
        self._error = ""

    def section(self) -> dict[str, Any] | None:
        """Its part of the status: None where the gateway has no certificate, or one together with its key in a file."""
        if not all(self._files):
            return None
        self._look()
        plain: dict[str, Any] = {"file": self._files[0], "error": self._error, "renewal_error": self._renewal_error()}
        if self._life is None:
            return {**plain, "ends": None, "left_s": None, "life_s": None}
        began, ends = self._life
        shown = datetime.fromtimestamp(ends, UTC).isoformat(timespec="seconds")
        return {**plain, "ends": shown, "left_s": round(ends - self._wall()), "life_s": round(ends - began)}

    def _look(self) -> None:
        """Reads the certificate when its file was replaced; one with an error also now and then."""
        try:
            status = os.stat(self._files[0])
            stamp = status.st_mtime_ns, status.st_ino
        except OSError:
            stamp = (0, 0)
        again = self._error and abs(self._wall() - self._looked_at) >= AGAIN_S
        if stamp == self._stamp and not again:
            return
        from edgert.links.tls import validity  # which costs memory, so only where it is wanted

        self._stamp, self._looked_at = stamp, self._wall()
        try:
            self._life, self._error = validity(*self._files), ""
        except ssl.SSLCertVerificationError as error:
            self._life, self._error = None, error.verify_message
        except (OSError, ValueError) as error:
            self._life, self._error = None, str(error)

    def _renewal_error(self) -> str:
        try:
            with self._renewal.open("rb") as file:
                error = json.loads(file.read(MOST_BYTES))["error"]
        except (OSError, ValueError, KeyError, TypeError):
            return ""
        return error if isinstance(error, str) else ""
