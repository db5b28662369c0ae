"""Looks into a built image: no secret and no identity is in it, its file systems are whole, its card has all files.

python3 -m images.check BOARD
"""

from __future__ import annotations

import argparse
import re
import stat
import struct
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from images.card import ENVIRONMENT, UEFI_LOADER
from images.programs import BuildError, run

ROOT: Final = Path(__file__).resolve().parents[1]
PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/]{4}")
NAMES: Final = re.compile(
    r"ssh_host_.*_key|authorized_keys|id_(rsa|ecdsa|ed25519)|.*\.(key|p12|pfx)|host_key|wifi\.conf|random-seed|credential\.secret|edgert\.toml"
    r"|.*\.lease[s]?|\.netrc|\.bash_history"
)
"""Files that have a secret or the traces of one machine in them."""
EMPTY: Final = ("etc/machine-id", "var/lib/dbus/machine-id")
LOCKED: Final = re.compile(r"[!*].*")
PROGRAMS: Final = (
    "usr/sbin/e2fsck", "usr/sbin/resize2fs", "usr/bin/partx", "usr/sbin/blkid", "usr/sbin/mosquitto",
    "usr/sbin/dropbear", "usr/bin/dropbearkey", "usr/sbin/wpa_supplicant", "usr/bin/python3",
    "usr/lib/systemd/systemd", "usr/bin/rauc", "boot/vmlinuz", "boot/initrd.img",
    "opt/edgert/bin/edgert-gateway", "opt/edgert/lib/gateway/__main__.py",
)  # fmt: skip
"""Started by the initramfs, by the provisioning, and by systemd."""
LOADER_FILES: Final = {
    "grub": {"grubenv", UEFI_LOADER},
    "u-boot": {"boot.scr"},
}
"""On the FAT partition, by boot loader."""
WANTED: Final = "WantedBy=multi-user.target"
WANTS: Final = "multi-user.target.wants"
SYSTEM_UNITS: Final = ("systemd-networkd.service", "systemd-resolved.service", "systemd-timesyncd.service")
"""Units of the suite: addresses, names (brokers and time servers have some), and the time, as a Pi has no clock."""
RAISED: Final = stat.S_ISUID | stat.S_ISGID
"""Bits by which a program has the rights of its owner or group. On a board nobody but root logs in."""
LARGEST_KEY: Final = 1 << 20
SECTOR: Final = 512
FAT: Final = 0x0C
LINUX: Final = 0x83


def identities(tree: Path) -> list[str]:
    """Files of a root file system that belong to one machine, or are secret; each with its reason."""
    found = []
    for path in _files(tree):
        name = str(path.relative_to(tree))
        if NAMES.fullmatch(path.name):
            found.append(f"{name}: by its name a secret, or the trace of a machine")
        elif path.stat().st_size < LARGEST_KEY and PRIVATE_KEY.search(path.read_bytes()):
            found.append(f"{name}: a private key")
    found += [f"{name}: expected an empty file, or none" for name in EMPTY if _content(tree / name).strip()]
    for line in _content(tree / "etc/shadow").splitlines():
        account, password = line.split(":")[:2]
        if not LOCKED.fullmatch(password):
            found.append(f"etc/shadow: account {account} expected to be locked")
    return sorted(found)


def not_started(tree: Path) -> list[str]:
    """Units that are to be started with a board, ours by what they say, and are not."""
    units = tree / "etc/systemd/system"
    found = [path.name for path in units.glob("edgert-*.*") if path.is_file() and WANTED in path.read_text()]
    return sorted(name for name in [*found, *SYSTEM_UNITS] if not (units / WANTS / name).is_symlink())


def raised(tree: Path) -> list[Path]:
    """The programs that have more rights than who starts them."""
    return sorted(path for path in _files(tree) if path.stat().st_mode & RAISED)


def _files(tree: Path) -> Iterator[Path]:
    return (path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())


def _content(path: Path) -> str:
    return path.read_text() if path.is_file() and not path.is_symlink() else ""


def partitions(card: bytes) -> list[tuple[int, int, int]]:
    """Type, offset and size (bytes) of the primary partitions in a master boot record."""
    if card[510:512] != b"\x55\xaa":
        raise BuildError("expected a master boot record, which ends with 55 AA")
    entries = [card[at : at + 16] for at in range(446, 510, 16)]
    found = [(entry[4], *struct.unpack("<II", entry[8:16])) for entry in entries if entry[4]]
    return [(kind, first * SECTOR, count * SECTOR) for kind, first, count in found]


def _check_card(card: Path, spec: dict[str, Any], work: Path) -> str:
    with card.open("rb") as file:
        table = partitions(file.read(SECTOR))
    if any(offset % 2**20 for _, offset, _ in table):
        raise BuildError(f"expected partitions at multiples of 1 MiB (a card erases large blocks), got {table}")
    if [kind for kind, _, _ in table] != [FAT, LINUX, LINUX, LINUX] or sum(table[-1][1:]) > card.stat().st_size:
        raise BuildError(f"expected partitions of FAT, slot A, slot B and data within the card, got {table}")
    if table[1][2] != table[2][2]:
        raise BuildError(f"expected slots of one size, as each takes any bundle, got {table}")
    parts = {}
    for name, (_, offset, size) in zip(("fat", "a", "b", "data"), table, strict=True):
        parts[name] = work / f"part-{name}"
        run("dd", f"if={card}", f"of={parts[name]}", "bs=1M", "conv=sparse",
            f"skip={offset // 2**20}", f"count={size // 2**20}")  # fmt: skip
    run("fsck.vfat", "-n", parts["fat"])
    for name in ("a", "data"):
        run("e2fsck", "-fn", parts[name])
    with parts["b"].open("rb") as slot:
        if any(any(block) for block in iter(lambda: slot.read(1 << 20), b"")):
            raise BuildError("expected an empty slot B")
    there = check_fat(parts["fat"], work / "fat")
    if missing := sorted(on_fat(spec) - there):
        raise BuildError(f"missing on the FAT partition: {missing}")
    return f"card.img: FAT with {len(there)} files, slot A and data are whole, slot B is empty"


def check_fat(partition: Path, folder: Path) -> set[str]:
    """Paths of the files on a FAT partition, which are copied into `folder`. Raises `BuildError` for a secret
    one."""
    folder.mkdir()
    run("mcopy", "-s", "-i", partition, "::/*", folder)
    if found := identities(folder):
        raise BuildError("expected no secret and no identity on the FAT partition, got:\n" + "\n".join(found))
    return {str(path.relative_to(folder)) for path in _files(folder)}


def on_fat(spec: dict[str, Any]) -> set[str]:
    """The files that a card of such a board (`card` of its description) has on its FAT partition."""
    trees = (Path(name).name for name in spec.get("device_trees", ()))
    u_boot = (name for name, *_ in spec.get("u_boot", ()))
    brought = {*trees, *u_boot, *spec.get("firmware", ()), *spec.get("files", ())}
    brought |= {ENVIRONMENT} if "environment" in spec else set()
    return {"edgert.sample.toml", *LOADER_FILES[spec["loader"]], *brought}


def check(board: str, images: Path) -> list[str]:
    """Checks an image. Returns the checks that passed, a line each. Raises `BuildError` for the first fault."""
    spec = tomllib.loads((Path(__file__).with_name("boards") / f"{board}.toml").read_text())
    said = []
    with tempfile.TemporaryDirectory(prefix="edgert-check-", dir=memory()) as folder:
        tree = Path(folder) / "tree"
        for name, place in (("root.ext4", tree), ("data.ext4", tree / "var")):
            run("e2fsck", "-fn", images / name)
            place.mkdir(exist_ok=True)
            run("debugfs", "-R", f"rdump / {place}", images / name)
        wanted = [*PROGRAMS, *(f"boot/dtb/{name}" for name in spec.get("device_trees", ()))]
        if missing := [name for name in wanted if not (tree / name).exists()]:
            raise BuildError(f"missing in the root file system: {missing}")
        if found := not_started(tree):
            raise BuildError(f"expected units that are started with the board: {found}")
        if programs := raised(tree):
            raise BuildError(f"expected no program with the setuid or setgid bit: {[path.name for path in programs]}")
        if found := identities(tree):
            raise BuildError("expected no secret and no identity in the image, got:\n" + "\n".join(found))
        said.append(f"root.ext4, data.ext4: whole; no secret or identity among {sum(1 for _ in _files(tree))} files")
        if (images / "card.img").exists():
            said.append(_check_card(images / "card.img", spec["card"], Path(folder)))
    return said


def memory() -> str | None:
    """A folder in memory, if there is one: the disk is slow."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(argv: Sequence[str] | None = None) -> int:
    """Checks one image; returns the exit status."""
    parser = argparse.ArgumentParser("images.check", description="Looks into a built image.")
    parser.add_argument("board")
    parser.add_argument("--images", type=Path, help="folder of the image (build/images/BOARD)")
    args = parser.parse_args(argv)
    try:
        for line in check(args.board, args.images or ROOT / "build" / "images" / args.board):
            print(f"check: {line}")
    except BuildError as error:
        print(f"check: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
