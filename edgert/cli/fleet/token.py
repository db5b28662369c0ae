"""`edgert fleet token | tokens`: provisioning files with one-time tokens instead of keys, and what became of them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from edgert.cli.fleet.boards import add_ca, text_of
from edgert.core.errors import DocumentError, EdgertError

HOURS: Final = 72
MOST_HOURS: Final = 24 * 366


def add(actions: Any) -> None:
    """Adds the actions."""
    text = (
        "write a provisioning file with a one-time token for each board: at its first start the board makes its key, "
        "and gets its identity for the token from the service (edgert fleet serve)"
    )
    token = actions.add_parser("token", help="write provisioning files with one-time tokens", description=text)
    token.set_defaults(act=_token)
    token.add_argument("names", nargs="+", metavar="BOARD")
    add_ca(token)
    token.add_argument("--out", type=Path, required=True, metavar="DIR", help="gets BOARD/edgert.toml for each")
    token.add_argument("--url", metavar="URL", help="of the service; default: enrolment.url in the common settings")
    token.add_argument("--common", type=Path, metavar="FILE", help="settings of all boards, as in edgert.toml")
    token.add_argument(
        "--hours", type=int, default=HOURS, help=f"how long the tokens may be used (default: {HOURS})"
    )  # fmt: skip
    text = "list the tokens: whose they are, until when, whether they were used, and how often they were refused"
    tokens = actions.add_parser("tokens", help=text, description=text)
    tokens.set_defaults(act=_tokens)
    add_ca(tokens)
    tokens.add_argument("--json", action="store_true", help="as one JSON object")


def _token(args: argparse.Namespace) -> int:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    from edgert.boards import files
    from edgert.boards.authority import Authority
    from edgert.boards.bundles import FILE, in_use
    from edgert.boards.table import boards_untrusted, common_untrusted
    from edgert.boards.tokens import Tokens
    from edgert.core.toml import to_toml

    if not 1 <= args.hours <= MOST_HOURS:
        raise EdgertError(f"--hours: expected 1 to {MOST_HOURS}, got {args.hours}")
    with files.locked(args.ca):
        authority = Authority(args.ca)
        text = text_of(args.common) if args.common else ""
        common = common_untrusted(text, str(args.common), authority.fleet)
        if args.url:
            common["enrolment"] = {"url": args.url}
        if not common.get("enrolment", {}).get("url"):
            raise EdgertError("--url: expected the address of the service, as https://HOST:8443, got none")
        boards, problems = boards_untrusted("\n".join(["id", *args.names]), common, authority.fleet)
        if problems:
            raise DocumentError("boards", problems)
        root = x509.load_pem_x509_certificate(authority.root_pem).fingerprint(hashes.SHA256()).hex()
        now = datetime.now(UTC)
        ends = now + timedelta(hours=args.hours)
        for warning in filter(None, [in_use(authority, board.name, now) for board in boards]):
            print(warning, file=sys.stderr)
        for board in boards:
            token = {"token": Tokens(args.ca).make(board.name, ends), "ca_sha256": root}
            gateway = board.settings["gateway"] | {"fleet": authority.fleet}
            enrolment = board.settings["enrolment"] | token
            files.folder(args.out / board.name)
            document = board.settings | {"gateway": gateway, "enrolment": enrolment}
            files.write(args.out / board.name / FILE, to_toml(document).encode())
    print(
        f"{args.out}: files with tokens for {', '.join(args.names)}, until {ends:%Y-%m-%d %H:%M} UTC", file=sys.stderr
    )
    return 0


def _tokens(args: argparse.Namespace) -> int:
    from edgert.boards import files
    from edgert.boards.tokens import Tokens
    from edgert.cli._control import table

    with files.locked(args.ca):
        found = Tokens(args.ca).all()
    now = datetime.now(UTC)
    if args.json:
        plain = [{name: value for name, value in asdict(one).items() if name != "key"} for one in found]
        states = [{"state": one.state(now)} for one in found]
        print(json.dumps({"tokens": [a | b for a, b in zip(plain, states, strict=True)]}, indent=1))
        return 0
    rows = [
        (one.name, one.state(now), f"{datetime.fromtimestamp(one.ends, UTC):%Y-%m-%d %H:%M}", str(one.refused))
        for one in found
    ]
    print("\n".join(table(("board", "token", "until (UTC)", "refused"), rows, left=3)))
    return 0
