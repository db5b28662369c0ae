"""`edgert diagnostics`: one file for a bug report."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path

from edgert.cli._control import AGENT_CONFIG, add_socket
from edgert.core.errors import EdgertError
from edgert.core.text.counted import counted

HELP = "write a file for a bug report: status, settings and logs without secrets; also of a gateway that is down"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="- for standard output (default: edgert-diagnostics-HOST-TIME.tar.gz here)",
    )
    add_socket(parser)
    parser.add_argument(
        "--agent-socket", metavar="PATH", help="the agent's control socket; default: as its settings say"
    )
    parser.add_argument(
        "--agent-config",
        type=Path,
        metavar="FILE",
        help=f"the agent's settings (default: {AGENT_CONFIG} if it is there)",
    )


def run(args: argparse.Namespace) -> int:
    from edgert.boards import files
    from edgert.cli.diagnostics.bundle import collect, packed

    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = args.output or f"edgert-diagnostics-{socket.gethostname()}-{now}.tar.gz"
    if path == "-" and sys.stdout.isatty():
        raise EdgertError("expected a file or a program behind -o -, got a terminal: edgert diagnostics -o - > FILE")
    if path != "-" and os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise EdgertError(f"{path}: expected a regular file or none yet; -o - writes to standard output")
    found, missing = collect(args)
    content = packed(found)
    if path == "-":
        sys.stdout.buffer.write(content)
    else:
        files.write(Path(path), content)
    size = f"{counted(len(found), 'file')}, {len(content) / 1000:,.0f} kB"
    without = f"; without {', '.join(missing)} (README.txt in it says why)" if missing else ""
    print(f"{'standard output' if path == '-' else path}: {size}{without}", file=sys.stderr)
    return 0
