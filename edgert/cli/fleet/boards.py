"""`edgert fleet ca | provision | revoke`: the fleet's CA, provisioning files of boards, and boards that are refused."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgert.core.errors import EdgertError
from edgert.core.text_files import text_untrusted

if TYPE_CHECKING:
    from edgert.boards.bundles import BoardResult
    from edgert.core.errors import Problem

DAYS: Final = 1825
"""Not every fleet has a service that renews the certificates of its boards."""
REPORT: Final = "report.json"
EVERY: Final = 10
"""Boards between two lines of progress."""


def add(actions: Any) -> None:
    """Adds the actions."""
    text = "make the fleet's CA, or certificates for its broker and for users of the broker"
    kinds = actions.add_parser("ca", help=text, description=text).add_subparsers(metavar="KIND", required=True)
    _add_init(kinds)
    _add_issue(kinds, "server", "HOST", "certificate of a broker that boards reach by these names or addresses", "+")
    _add_issue(kinds, "user", "NAME", "certificate of a client of the broker that is no gateway: central, operators", 1)
    _add_issue(kinds, "updates", "NAME", "certificate that signs update bundles, which all boards of the fleet take", 1)
    _add_provision(actions)
    text = "revoke the certificates of a board, a user, or a broker (its first host): writes crl.pem in the CA's folder"
    revoke = actions.add_parser("revoke", help=text, description=text)
    revoke.add_argument("name", metavar="BOARD")
    add_ca(revoke)
    revoke.add_argument("--json", action="store_true", help="as one JSON object")
    revoke.set_defaults(act=_revoke)


def add_ca(parser: argparse.ArgumentParser) -> None:
    """Adds the option that names the CA's folder."""
    parser.add_argument("--ca", type=Path, required=True, metavar="DIR", help="folder of the CA")


def add_days(parser: argparse.ArgumentParser) -> None:
    """Adds the option that `life` reads."""
    parser.add_argument("--days", type=int, default=DAYS, help=f"how long new certificates are valid (default: {DAYS})")


def _add_init(kinds: Any) -> None:
    text = "make root, intermediate, an empty list of revoked certificates, the fleet's key, and the key of MACs"
    init = kinds.add_parser("init", help=text, description=text)
    init.add_argument("folder", type=Path, metavar="DIR", help="folder that is not there yet")
    init.add_argument("--fleet", default="default", help="name of the fleet (default: default)")
    init.set_defaults(act=_init)


def _add_issue(kinds: Any, kind: str, name: str, text: str, count: Any) -> None:
    issue = kinds.add_parser(kind, help=text, description=text)
    issue.add_argument("names", nargs=count, metavar=name)
    add_ca(issue)
    issue.add_argument("--out", type=Path, required=True, metavar="DIR", help=f"for {kind}.pem, {kind}.key and ca.pem")
    add_days(issue)
    issue.set_defaults(act=_issue, kind=kind)


def _add_provision(actions: Any) -> None:
    text = "write a provisioning file with certificate and keys for each board of a table; may be repeated"
    provision = actions.add_parser("provision", help=text, description=text)
    provision.add_argument("table", type=Path, metavar="CSV", help="a line per board: id, site, network.address, ...")
    add_ca(provision)
    provision.add_argument("--out", type=Path, required=True, metavar="DIR", help="gets BOARD/edgert.toml for each")
    provision.add_argument("--common", type=Path, metavar="FILE", help="settings of all boards, as in edgert.toml")
    add_days(provision)
    provision.add_argument("--json", action="store_true", help="the report as one JSON object")
    provision.set_defaults(act=_provision)


def _init(args: argparse.Namespace) -> int:
    from edgert.boards.authority import create
    from edgert.core.ids import GATEWAY_NAME

    if not GATEWAY_NAME.fullmatch(args.fleet):
        raise EdgertError(f"--fleet: expected letters, digits, '_', '.' or '-', got {args.fleet!r}")
    create(args.folder, args.fleet, datetime.now(UTC))
    print(f"{args.folder}: a CA for the fleet {args.fleet}", file=sys.stderr)
    print(
        f"move {args.folder}/root/root.key to a place that is offline; it is needed only to renew the CA",
        file=sys.stderr,
    )
    print(
        f"give {args.folder}/mac.key to the collector (collector.mac_key_file): with it alone it takes results of the "
        "boards, and they its acknowledgements",
        file=sys.stderr,
    )
    return 0


def _issue(args: argparse.Namespace) -> int:
    from edgert.boards import files
    from edgert.boards.authority import Authority

    valid, now = life(args), datetime.now(UTC)
    with files.locked(args.ca):
        authority = Authority(args.ca)
        if args.kind == "server":
            issued = authority.server(args.names, now, valid)
        elif args.kind == "updates":
            issued = authority.updates(args.names[0], now, valid)
        else:
            issued = authority.user(args.names[0], now, valid)
    files.folder(args.out)
    files.write(args.out / f"{args.kind}.pem", issued.certificate, files.PUBLIC)
    files.write(args.out / f"{args.kind}.key", issued.key)
    files.write(args.out / "ca.pem", authority.root_pem, files.PUBLIC)
    print(f"{args.out}: {args.kind}.pem, {args.kind}.key and ca.pem for {', '.join(args.names)}", file=sys.stderr)
    return 0


def _provision(args: argparse.Namespace) -> int:
    from edgert.boards import bundles, files
    from edgert.boards.authority import Authority
    from edgert.boards.table import boards_untrusted, common_untrusted

    with files.locked(args.ca):
        authority = Authority(args.ca)
        common = common_untrusted(text_of(args.common), str(args.common), authority.fleet) if args.common else {}
        boards, problems = boards_untrusted(text_of(args.table), common, authority.fleet)
        progress = _Progress(len(boards))
        results = bundles.provision(authority, boards, args.out, datetime.now(UTC), life(args), progress)
    report = _report(results, problems)
    files.write(args.out / REPORT, json.dumps(report, indent=1).encode() + b"\n")
    for line in [f"{args.table}: {problem}" for problem in problems]:
        print(line, file=sys.stderr)
    for result in results:
        if why := result.error or result.warning:
            print(f"{args.table}: line {result.line}: {why}", file=sys.stderr)
    print(json.dumps(report, indent=1) if args.json else _summary(report, args.out))
    return 1 if problems or report["refused"] else 0


class _Progress:
    def __init__(self, boards: int) -> None:
        self._boards, self._done = boards, 0

    def __call__(self, result: BoardResult) -> None:
        self._done += 1
        if self._done % EVERY == 0 or self._done == self._boards:
            print(f"{self._done} of {self._boards} boards", file=sys.stderr)


def _report(results: list[BoardResult], problems: list[Problem]) -> dict[str, Any]:
    counts = Counter(result.state for result in results)
    return {
        **{state: counts[state] for state in ("made", "updated", "kept", "refused")},
        "boards": [
            {"id": r.board, "line": r.line, "state": r.state, "file": r.file, "bytes": r.bytes}
            | ({"error": r.error} if r.error else {})
            | ({"warning": r.warning} if r.warning else {})
            for r in results
        ],
        "problems": [{"where": one.path, "expected": one.expected, "got": one.got} for one in problems],
    }


def _summary(report: dict[str, Any], out: Path) -> str:
    states = ", ".join(f"{report[state]} {state}" for state in ("made", "updated", "kept", "refused"))
    wrong = f"; faults in the table: {len(report['problems'])}" if report["problems"] else ""
    return f"{states}{wrong}; report: {out / REPORT}"


def _revoke(args: argparse.Namespace) -> int:
    from edgert.boards import files
    from edgert.boards.authority import Authority

    with files.locked(args.ca):
        authority = Authority(args.ca)
        count = authority.revoke(args.name, datetime.now(UTC))
    path = args.ca / "crl.pem"
    if args.json:
        print(json.dumps({"name": args.name, "revoked": count, "crl": str(path)}))
        return 0
    print(f"{args.name}: {count} certificates revoked" if count else f"{args.name}: was revoked before")
    print(
        f"give {path} to the broker (crlfile), and to the boards (edgert fleet crl --help), then change the fleet's "
        "key: edgert fleet key --help"
    )
    return 0


def life(args: argparse.Namespace) -> timedelta:
    """The time for which new certificates are valid. Raises `EdgertError`."""
    if not 1 <= args.days <= 36_500:
        raise EdgertError(f"--days: expected 1 to 36500, got {args.days}")
    return timedelta(days=args.days)


def text_of(path: Path) -> str:
    """The content of a file. Raises `EdgertError`."""
    from edgert.boards import files

    return text_untrusted(files.read(path), str(path))
