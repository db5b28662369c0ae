"""`edgert fleet key | mac-key`: the file with the keys of the agents, and that with the central key of MACs."""

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from edgert.boards.files import sync
from edgert.core.errors import EdgertError
from edgert.core.ids import GATEWAY_NAME
from edgert.core.results.macs import gateway_key
from edgert.core.text.counted import counted
from edgert.core.text.key_lines import KEY_BYTES, key_line, parse_keys
from edgert.core.text_files import ENCODING

ROTATION: Final = (
    "To rotate while all boards run: --add on one board and copy the file to all; when all have it, --use and copy; "
    "when all have it, --drop and copy. Agents read the file again by themselves within seconds. `edgert fleet status` "
    "shows the ids of each board's keys, the sealing one first: --use and --drop only when all show the same ones. A "
    "board that is off meanwhile needs the file before it starts."
)
MAC_ROTATION: Final = (
    "To rotate while all gateways run: --add, --use, copy the file to the collectors and start them anew; give all "
    "gateways their new keys (--of, or `edgert fleet provision`); then --drop, copy and start the collectors anew."
)

NEXT: Final = "# next"
"""The line before a key that was added and is not in use yet."""


def add(actions: Any) -> None:
    """Adds the actions."""
    text = "make the file with the fleet's keys, or rotate a key in it; copy the file to every board"
    key = actions.add_parser("key", help=text, description=text, epilog=ROTATION)
    key.set_defaults(act=_change, what="fleet key", whither="copy the file to every board of the fleet")
    _add_file(key, "it opens packets, but does not seal yet", "let the added key seal", "the sealing one")
    text = "make or rotate the central key of MACs on results, or make the keys of gateways from it (see security.md)"
    mac = actions.add_parser("mac-key", help=text, description=text, epilog=MAC_ROTATION)
    mac.set_defaults(
        act=_mac_key, what="central key", whither="copy the file to the collectors alone (collector.mac_key_file)"
    )
    change = _add_file(
        mac, "results may have a MAC by it", "make keys of gateways from the added key", "the one in use"
    )
    change.add_argument("--of", metavar="GATEWAY", help="write the key of this gateway to --out, for its settings")
    mac.add_argument(
        "--fleet", default="default", metavar="NAME", help="with --of: the fleet's name (default: default)"
    )
    mac.add_argument("--out", type=Path, metavar="FILE", help="with --of: a file that is not there yet (mode 0600)")


def _add_file(key: argparse.ArgumentParser, added: str, used: str, kept: str) -> Any:
    key.add_argument("file", type=Path, help="the key file (mode 0600)")
    change = key.add_mutually_exclusive_group()
    change.add_argument("--add", action="store_true", help=f"append a new key: {added}")
    change.add_argument("--use", action="store_true", help=used)
    change.add_argument("--drop", action="store_true", help=f"remove every key but {kept}")
    return change


def _mac_key(args: argparse.Namespace) -> int:
    return _change(args) if args.of is None else _of_gateway(args)


def _change(args: argparse.Namespace) -> int:
    new = key_line(secrets.token_bytes(KEY_BYTES))
    if not (args.add or args.use or args.drop):
        _write(args.file, [new], "to rotate its key: --add, --use, --drop")
        print(f"{args.file}: a new {args.what}; {args.whither}", file=sys.stderr)
        return 0
    keys, added = _keys(args.file, args.what)
    if args.add:
        keys, added = [*keys, new], new
        parse_keys("\n".join(keys), f"{args.file}: with the new key")
    elif args.use:
        if not added:
            raise EdgertError(
                f"{args.file}: expected a key after a line {NEXT!r}, as --add writes it, got none: it is in use"
                " already, or has to be added first"
            )
        keys, added = [added, *(key for key in keys if key != added)], ""
    else:
        keys, added = keys[:1], ""
    temporary = args.file.with_name(args.file.name + ".new")
    temporary.unlink(missing_ok=True)
    _write(temporary, [*(key for key in keys if key != added), *([NEXT, added] if added else [])])
    temporary.replace(args.file)
    sync(args.file.parent)
    print(f"{args.file}: {counted(len(keys), 'key')}; {args.whither}", file=sys.stderr)
    return 0


def _of_gateway(args: argparse.Namespace) -> int:
    for option, name in (("--of", args.of), ("--fleet", args.fleet)):
        if not GATEWAY_NAME.fullmatch(name):
            raise EdgertError(f"{option}: expected a name of letters, digits, '_', '.' or '-', got {name!r}")
    if args.out is None:
        raise EdgertError("--out: expected a file for the gateway's key, got none")
    central = parse_keys(_text(args.file), str(args.file), "edgert fleet mac-key")
    _write(args.out, [key_line(gateway_key(central[0], args.fleet, args.of))], "expected the name of a new file")
    print(f"{args.out}: the key of {args.of}, for its central.mac_key_file", file=sys.stderr)
    return 0


def _keys(path: Path, what: str) -> tuple[list[str], str]:
    """The keys of a file, and the one that was added and is not in use yet (empty: none)."""
    text = _text(path)
    keys = [key_line(key) for key in parse_keys(text, str(path), f"edgert fleet {what.replace(' ', '-')}")]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return keys, next((key for mark, key in itertools.pairwise(lines) if mark == NEXT), "")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding=ENCODING, errors="replace")
    except OSError as error:
        raise EdgertError(f"{path}: expected a key file: {error.strerror or error}") from error


def _write(path: Path, keys: Sequence[str], advice: str = "") -> None:
    """To a file that is not there yet, for its owner alone. `advice` where there is one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("".join(f"{key}\n" for key in keys))
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise EdgertError(f"{path}: there is a file already; {advice}") from None
    except OSError as error:
        raise EdgertError(f"{path}: the key file cannot be written: {error.strerror or error}") from error
