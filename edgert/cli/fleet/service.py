"""`edgert fleet serve`: the service that signs certificates of boards, where the intermediate CA is."""

from __future__ import annotations

import argparse
import json
import math
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgert.cli.fleet.boards import add_ca, add_days, life
from edgert.core.errors import EdgertError

if TYPE_CHECKING:
    from edgert.boards.authority import Authority
    from edgert.cli.fleet.https_server import Asked, HttpsAnswer

PORT: Final = 8443
SAY_S: Final = 1.0


def add(actions: Any) -> None:
    """Adds the action."""
    text = (
        "over HTTPS, until it is stopped: sign new certificates of boards before the old ones end, and give boards "
        "their identity for a token (edgert fleet token)"
    )
    serve = actions.add_parser("serve", help=text, description=text)
    serve.set_defaults(act=_serve)
    add_ca(serve)
    serve.add_argument(
        "--server", type=Path, required=True, metavar="DIR",
        help="folder with server.pem and server.key of this machine (edgert fleet ca server HOST)",
    )  # fmt: skip
    serve.add_argument("--listen", default="0.0.0.0", metavar="ADDRESS", help="address to listen on (default: all)")
    serve.add_argument("--port", type=int, default=PORT, help=f"TCP port (default: {PORT})")
    add_days(serve)


def _serve(args: argparse.Namespace) -> int:
    from edgert.boards import files
    from edgert.boards.authority import Authority
    from edgert.cli.fleet.https_server import HttpsServer

    with files.locked(args.ca):
        fleet = Authority(args.ca).fleet
    service = Service(args.ca, life(args), lambda text: print(text, file=sys.stderr, flush=True))
    try:
        context = server_context(args.ca / "root.pem", args.server)
        with HttpsServer(args.listen, args.port, context, service.answer_untrusted) as server:
            print(f"fleet {fleet}: certificates of boards are signed on port {server.server_port}", file=sys.stderr)
            server.serve_forever()
    except KeyboardInterrupt:
        return 0
    except (OSError, OverflowError) as error:
        raise EdgertError(f"{args.listen}:{args.port}, {args.server}/server.pem, server.key: {error}") from error
    return 0


def server_context(root: Path, folder: Path) -> ssl.SSLContext:
    """TLS 1.3. A client may show a certificate, which the root must have signed. Raises `OSError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(root)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.num_tickets = 0  # a session is never resumed: a revoked board shows its certificate each time
    return context


class Service:
    """Answers requests of boards. Reads the CA anew for each, so that a name counts as revoked at once."""

    def __init__(self, ca: Path, life: timedelta, say: Callable[[str], None]) -> None:
        """`life` of new certificates."""
        self._ca, self.life, self._say = ca, life, say
        self.wall: Callable[[], datetime] = partial(datetime.now, UTC)
        self.clock = time.monotonic
        self._lock = threading.Lock()
        self._told_at = -math.inf
        self.refused = 0

    def answer_untrusted(self, asked: Asked) -> HttpsAnswer:
        """On any thread."""
        from edgert.boards import files, signing_requests
        from edgert.boards.authority import Authority
        from edgert.cli.fleet.https_server import HttpsAnswer

        answers = {signing_requests.RENEW: self._renew, signing_requests.ENROL: self._enrol}
        if asked.path == signing_requests.CA:
            return HttpsAnswer(200, (self._ca / "root.pem").read_bytes())
        if asked.path not in answers:
            return HttpsAnswer(404, b"expected a path of the fleet's service\n")
        with self._lock, ExitStack() as held:
            try:
                held.enter_context(files.locked(self._ca))
                authority = Authority(self._ca)
            except EdgertError as error:
                self._say(str(error))
                return HttpsAnswer(503, b"the CA cannot be used now; try again\n")
            try:
                return HttpsAnswer(200, answers[asked.path](authority, asked))
            except files.FileError as error:  # a path of this machine is nothing for others
                self._say(str(error))
                return HttpsAnswer(503, b"the CA cannot be used now; try again\n")
            except EdgertError as error:
                self._tell_refusal(f"{asked.address}: {error}")
                return HttpsAnswer(403, f"{error}\n".encode())

    def _tell_refusal(self, text: str) -> None:
        """Once a second at most: anybody can be refused, again and again."""
        self.refused += 1
        if self.clock() - self._told_at >= SAY_S:
            self._told_at = self.clock()
            self._say(f"refused ({self.refused} in all): {text}")

    def _renew(self, authority: Authority, asked: Asked) -> bytes:
        from edgert.boards.signing_requests import signing_request_untrusted

        if asked.certificate is None:
            raise EdgertError("expected the certificate of a board, got none")
        board = authority.owner_untrusted(asked.certificate)
        name, key = signing_request_untrusted(asked.body)
        if name != board:
            raise EdgertError(f"expected a signing request of {board}, whose certificate was shown, got one of {name}")
        made = authority.signed(board, key, self.wall(), self.life)
        self._say(f"{asked.address}: {board} has a new certificate")
        return made

    def _enrol(self, authority: Authority, asked: Asked) -> bytes:
        from edgert.boards.signing_requests import enrolment_untrusted, signing_request_untrusted
        from edgert.boards.tokens import Tokens

        token, request = enrolment_untrusted(asked.body)
        name, key = signing_request_untrusted(request)
        Tokens(self._ca).redeem(token, name, key, self.wall())
        certificate = authority.signed(name, key, self.wall(), self.life)
        self._say(f"{asked.address}: {name} is enrolled")
        return json.dumps(authority.identity(name, certificate)).encode()
