"""The file of `edgert diagnostics`: its parts, a list of them, and why others are missing."""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import edgert
from edgert.boards import files
from edgert.bounded import ENCODING, MOST_BYTES
from edgert.cli.diagnostics.commands import within
from edgert.cli.diagnostics.parts import Sources
from edgert.cli.diagnostics.redaction import CUT, REDACTED, Redactor
from edgert.cli.diagnostics.secrets import KnownSecrets
from edgert.core.errors import EdgertError
from edgert.core.settings.programs import PROGRAMS

FOLDER: Final = "edgert-diagnostics"
PART_S: Final = 40.0
README: Final = """\
Diagnostics of a machine with edgert {version}, made at {made}.

Passwords, keys and tokens of this machine are replaced by {redacted}, and samples of sensors' payloads by {cut}.
What is in here: names of hosts, flows, topics and devices, addresses, settings, counters, documents of flows, and the
logs since the last start.

"""


def collect(args: argparse.Namespace) -> tuple[dict[str, bytes], dict[str, str]]:
    """Name of a file -> its content, and name of a file that there is not -> why. Raises `EdgertError` where the
    secrets of this machine are not to be found out: nothing is written then."""
    sources = Sources(args)
    environments = [sources.environment(program) for program in PROGRAMS]
    known = within(PART_S, lambda: KnownSecrets(sources.configs, environments))
    redactor = Redactor(known.found)
    found, missing = {}, {}
    for name, make in sources.parts().items():
        try:
            found[name] = _cut(redactor.text(within(PART_S, make))).encode(*ENCODING)
        except EdgertError as error:
            missing[name] = redactor.text(str(error))
    unread = {redactor.text(path): why for path, why in known.unread.items()}
    missing |= {f"secrets of {path}": f"{why}; they were not looked for" for path, why in unread.items()}
    about = {"version": edgert.__version__, "made": datetime.now(UTC).isoformat(timespec="seconds")}
    sizes = {name: len(content) for name, content in found.items()}
    manifest = json.dumps({"edgert": about, "bytes": sizes, "missing": missing}, indent=1)
    lines = [*(f"{name}: {size:,} bytes" for name, size in sizes.items()), "", "Not in here:", ""]
    lines += [f"{name}: {why}" for name, why in missing.items()]
    head = README.format(**about, redacted=REDACTED, cut=CUT)
    texts = {"README.txt": "\n".join([head, *lines, ""]), "manifest.json": f"{manifest}\n"}
    return {**{name: text.encode(*ENCODING) for name, text in texts.items()}, **found}, missing


def _cut(text: str) -> str:
    return text if len(text) <= MOST_BYTES else f"{text[:MOST_BYTES]}\n[cut here]\n"


def packed(contents: Mapping[str, bytes]) -> bytes:
    """The archive, in which only its owner may read the files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size, member.mode, member.mtime = len(content), files.PRIVATE, int(time.time())
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()
