"""A fleet's CA whose service answers on loopback over TLS, and boards with certificates of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from edgert.boards import files
from edgert.boards.authority import Authority, create
from edgert.cli.fleet.https_server import HttpsServer
from edgert.cli.fleet.service import Service, server_context

HOST = "127.0.0.1"
LIFE = timedelta(days=90)
NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=80)
"""A certificate of `LIFE` made then has a ninth of its life left."""


class SigningWorld:
    """A CA in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ca = folder, folder / "ca"
        create(self.ca, "farm", LONG_AGO)
        self.said: list[str] = []
        self.service = Service(self.ca, LIFE, self.said.append)
        server = self.authority().server([HOST], NOW, LIFE)
        files.folder(folder / "server")
        files.write(folder / "server/server.pem", server.certificate)
        files.write(folder / "server/server.key", server.key)
        self.url = ""

    def authority(self) -> Authority:
        return Authority(self.ca)

    @contextmanager
    def serving(self) -> Iterator[HttpsServer]:
        context = server_context(self.ca / "root.pem", self.folder / "server")
        with HttpsServer(HOST, 0, context, self.service.answer_untrusted) as server:
            self.url = f"https://{HOST}:{server.server_port}"
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()

    def board(self, name: str, made: datetime = LONG_AGO) -> Path:
        """The folder that stands for /var/edgert on the board."""
        stored, issued = self.folder / name, self.authority().board(name, made, LIFE)
        for path in ("identity", "enrolment"):
            (stored / path).mkdir(parents=True)
        files.write(stored / "identity/board.pem", issued.certificate)
        files.write(stored / "identity/board.key", issued.key)
        files.write(stored / "identity/ca.pem", self.authority().root_pem)
        files.write(stored / "enrolment/url", f"{self.url}\n".encode())
        return stored


def pair(stored: Path) -> tuple[x509.Certificate, bool]:
    """The board's certificate, and whether the key belongs to it."""
    found = x509.load_pem_x509_certificate((stored / "identity/board.pem").read_bytes())
    key = load_pem_private_key((stored / "identity/board.key").read_bytes(), None)
    return found, key.public_key() == found.public_key()
