"""On the board, before network and broker: takes `edgert.toml` from the FAT partition once, applies what is stored.

If `edgert-reset.txt` is there, the board is reset by a restart first.

    python3 -m provisioning.on_board

Every partition labelled EDGERT is looked at: that of the card and that of a USB stick.
"""

from __future__ import annotations

import contextlib
import grp
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from edgert.boards import files, reset
from edgert.core.errors import DocumentError, EdgertError, Problem
from edgert.core.text_files import text_untrusted
from provisioning import grow, upkeep
from provisioning.document import (
    COMPLETE_FILE,
    IDENTITY,
    RENEWED,
    SECRETS,
    SERVICE_FILE,
    TOKEN_FILE,
    TOKEN_KEY,
    WIFI_FILE,
    files_untrusted,
)
from provisioning.identity import own_name

LABEL: Final = "EDGERT"
MOUNTED: Final = Path("/run/edgert-provision")
STORED: Final = Path("/var/edgert")
UNTOLD: Final = Path("/etc/edgert/unprovisioned.toml")
"""Settings of the image that hold as long as no file was found."""
NETWORKS: Final = Path("/run/systemd/network")
FILE: Final = "edgert.toml"
SAME_FILE: Final = (FILE, f"{FILE}.txt")
"""Windows adds the second ending and does not show it."""
MEANT: Final = (".toml", ".txt", ".docx")
"""Endings of a file that was meant to be the provisioning file, if its name begins like that."""
SAMPLE: Final = "edgert.sample.toml"
TAKEN: Final = "edgert.taken"
"""Name of the provisioning file once it is stored, until it is overwritten."""
ERRORS: Final = "edgert-errors.txt"
RESET_FILE: Final = "edgert-reset.txt"
RESET_FILES: Final = "edgert-reset*"
PENDING: Final = "update/pending.json"
"""The note of an update that is not decided (edgert.cli.board.slots), below `STORED`."""
ROOT_ONLY: Final = tuple(Path(name).name for name in (IDENTITY["fleet_key"], TOKEN_FILE, WIFI_FILE))
"""The agent takes the fleet's key only from a file that nobody but its owner reads."""
LIMIT_BYTES: Final = 1 << 18
GROUP: Final = "edgert-board"
"""Group of the image whose members read the key of the board's certificate."""


def main() -> int:
    """Returns 0 also when the file is wrong: the board goes on as before, and the errors stand beside the file."""
    _grow()
    MOUNTED.mkdir(mode=0o700, exist_ok=True)
    found = subprocess.run(
        ["blkid", "-t", f"LABEL={LABEL}", "-o", "device"], capture_output=True, text=True, check=False
    )
    devices = found.stdout.split()
    asked = [_on(device, take_reset) for device in devices]
    if any(asked):
        subprocess.run(["systemctl", "--force", "reboot"], check=True)  # no service is to start before
        return 0
    for device in devices:
        _on(device, lambda boot: not _asks(boot) and take_untrusted(boot, STORED, own_name()))
    _or_say("the stored files stay as they are", _mend)
    _or_say("name and network stay as they are", lambda: _apply(STORED))
    return 0


def _mend() -> None:
    """Without settings the board is as the image has it; a damaged file is made anew."""
    defaults = files_untrusted(UNTOLD.read_text(), str(UNTOLD), upkeep.id_of(STORED) or own_name())
    if not (STORED / "gateway.toml").exists() and not (STORED / upkeep.KEPT).exists():
        store(STORED, defaults)
    for line in upkeep.mend(STORED, defaults, lambda name, text: _store(STORED, name, text)):
        print(f"edgert-provision: {line}", file=sys.stderr)


def _or_say(otherwise: str, do: Callable[[], object]) -> bool:
    """Returns what `do` returns. What cannot be done must not keep the services from starting: it is said."""
    try:
        return bool(do())
    except (OSError, EdgertError) as error:
        print(f"edgert-provision: {otherwise}: {error}", file=sys.stderr)
        return False


def _on(device: str, take: Callable[[Path], bool]) -> bool:
    """Returns what `take` returns for the folder of a partition; False for one that cannot be mounted."""
    mounted = subprocess.run(["mount", "-t", "vfat", "-o", "umask=077,nosuid", device, MOUNTED], check=False)
    if mounted.returncode:
        print(f"edgert-provision: {device}: expected a FAT file system, got another or a damaged one", file=sys.stderr)
        return False
    try:
        return _or_say(f"nothing is taken from {device}", lambda: take(MOUNTED))
    finally:
        subprocess.run(["umount", MOUNTED], check=False)


def _grow() -> None:
    try:
        if grow.grow(STORED):
            print("edgert-provision: the data partition has grown to the end of its disk")
    except (OSError, subprocess.CalledProcessError) as error:  # with less room for data the board works, too
        print(f"edgert-provision: the data partition stays as it is: {error}", file=sys.stderr)


def _asks(boot: Path) -> list[Path]:
    """The files that ask for a factory reset."""
    return sorted(boot.glob(RESET_FILES))


def take_reset(boot: Path) -> bool:
    """Orders a factory reset if folder `boot` has the file that asks for it, and removes the file: whether it did.

    After a power cut between the two the board is reset, finds the file again, and is reset again.
    """
    asked, ordered = _asks(boot), reset.MARK.exists()
    if not asked:
        return False
    if (STORED / PENDING).exists():  # without this note nothing would send the board back from a broken slot
        print("edgert-provision: no factory reset at this start, as an update is not decided", file=sys.stderr)
        return False
    try:
        if source := _source(boot):
            _made_untrusted(source, "")
        reset.order()
        for path in asked:
            path.unlink()
        os.sync()
    except DocumentError as error:  # else the board would have neither its old settings nor new ones
        _tell(boot, error)
        return False
    except (OSError, EdgertError) as error:  # a stick that cannot be written: each start would be a reset
        if not ordered:  # by another stick
            with contextlib.suppress(OSError):  # data that cannot be written have no mark
                reset.withdraw()
        print(f"edgert-provision: no factory reset, as {RESET_FILE} cannot be removed: {error}", file=sys.stderr)
        return False
    print(f"edgert-provision: {RESET_FILE} is removed; the board restarts for its factory reset")
    return True


def take_untrusted(boot: Path, stored: Path, own_name: str = "") -> bool:
    """Stores below `stored` what the file in folder `boot` says, then wipes the file: whether there was one to take.

    `own_name` is the gateway's id where the file gives none. A faulty file stays, and a file with its errors is written
    beside it.
    """
    taken = boot / TAKEN
    try:
        source = _source(boot)
        made = _made_untrusted(source, own_name) if source else None
    except DocumentError as error:
        _tell(boot, error)
        return False
    if made is not None and source:
        store(stored, made)
        source.replace(taken)
        os.sync()
    if taken.exists():  # of this start, or of one that was cut off
        _wipe(taken)
    if made is None:
        return False
    (boot / ERRORS).unlink(missing_ok=True)
    print(f"edgert-provision: {FILE} is stored on the board and wiped from its partition")
    return True


def _source(boot: Path) -> Path | None:
    """The provisioning file in folder `boot`. Raises `DocumentError` if there are two, or one of a similar name."""
    names = sorted(path.name for path in boot.iterdir() if path.is_file())
    found = [name for name in names if name.lower() in SAME_FILE]
    if len(found) > 1:
        raise DocumentError(FILE, [Problem("file", "one file", " and ".join(found))])
    if found:
        return boot / found[0]
    known = (SAMPLE, ERRORS, *(path.name.lower() for path in _asks(boot)))
    similar = (name for name in names if name.lower().startswith("edgert") and name.lower().endswith(MEANT))
    if meant := [name for name in similar if name.lower() not in known]:
        raise DocumentError(FILE, [Problem("file", f"the name {FILE}", name) for name in meant])
    return None


def _made_untrusted(source: Path, own_name: str) -> Mapping[str, str]:
    """Returns what the provisioning file `source` says. Raises `DocumentError`."""
    with source.open("rb") as file:
        content = file.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise DocumentError(FILE, [Problem("file", f"at most {LIMIT_BYTES} bytes", "more")])
    if content and not content.strip(b"\0"):
        raise DocumentError(FILE, [Problem("file", "text", "zero bytes only: the copy was cut off, copy it again")])
    return files_untrusted(text_untrusted(content, FILE), own_name=own_name)


def _tell(boot: Path, error: DocumentError) -> None:
    """Says what is wrong beside the file, too; a text that stands there already spares the card a write."""
    print(f"edgert-provision: {error}", file=sys.stderr)
    path, text = boot / ERRORS, f"{error}\n"
    if not path.exists() or path.read_text(errors="replace") != text:
        path.write_text(text)


def store(stored: Path, made: Mapping[str, str]) -> None:
    """Removes the files of an earlier provisioning file, and writes those of this one: who is let in by it has not the
    earlier one's keys. A power cut amid this does no harm, as the source is still there and is taken again."""
    for name in {*IDENTITY.values(), SERVICE_FILE, TOKEN_FILE, TOKEN_KEY, WIFI_FILE} - set(made):
        for path in (stored / name, stored / upkeep.KEPT / name):
            if path.exists():
                _wipe(path)
    for name, text in made.items():
        _store(stored, name, text)
        if name in upkeep.ALL:
            _store(stored, f"{upkeep.KEPT}/{name}", text)
    os.sync()  # before the only other copy goes
    shutil.rmtree(stored / RENEWED, ignore_errors=True)  # a pair that the earlier file's was replaced by
    if (stored / COMPLETE_FILE).exists():
        _wipe(stored / COMPLETE_FILE)


def _store(stored: Path, name: str, text: str) -> None:
    """Writes a file below `stored`. Accounts of broker and gateway read what is no secret."""
    path, secret = stored / name, name.removeprefix(f"{upkeep.KEPT}/") in SECRETS
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    mode = files.PRIVATE if secret else files.PUBLIC
    files.write(path, text.encode(), mode, group() if secret and path.name not in ROOT_ONLY else None)


def group() -> int | None:
    """The number of `GROUP`; None on a machine without it."""
    try:
        return grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return None


def _wipe(path: Path) -> None:
    """Overwrites the file, then removes it. (The card may keep the old blocks where no file system finds them.)"""
    with path.open("r+b") as file:
        file.write(b"\0" * os.fstat(file.fileno()).st_size)
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    os.sync()


def _apply(stored: Path) -> None:
    """Sets the host name, and gives networkd the file of a fixed address, if the board was told."""
    hostname, network = stored / "network/hostname", stored / "network/lan.network"
    if hostname.exists():
        socket.sethostname(hostname.read_text().strip())
    if network.exists() and network.stat().st_size:
        NETWORKS.mkdir(mode=0o755, parents=True, exist_ok=True)
        (NETWORKS / "10-lan.network").write_text(network.read_text())


if __name__ == "__main__":
    sys.exit(main())
