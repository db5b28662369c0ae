"""Serves the files of a folder on loopback, in parts (HTTP ranges): RAUC fetches of a bundle what it needs."""

from __future__ import annotations

import re
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)")


class Server:
    """A web server for as long as its context lasts."""

    def __init__(self, folder: Path) -> None:
        self.sent = 0
        """Bytes of files, so far."""
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Files", (_Files,), {"folder": folder, "owner": self})
        )
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Server:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Files(BaseHTTPRequestHandler):
    folder: Path
    owner: Server
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = self.folder / Path(self.path).name
        if not path.is_file():
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        size = path.stat().st_size
        asked = RANGE.fullmatch(self.headers.get("Range", ""))
        first, last = (int(asked[1]), min(int(asked[2] or size - 1), size - 1)) if asked else (0, size - 1)
        self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last - first + 1))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        if body:
            with path.open("rb") as file:
                file.seek(first)
                content = file.read(last - first + 1)
            self.owner.sent += len(content)
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the standard library's name
        """Says nothing."""
