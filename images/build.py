"""Builds the image of a board: `python3 images/build.py BOARD`, as root.

    packages of Debian trixie ─┐
    wheels of requirements/ ───┼─▶ root file system (read-only) ─▶ root.ext4, vmlinuz, initrd.img
    units, settings ───────────┘   /var of it (the data)         ─▶ data.ext4
                                                                    card.img, for a board that boots from a card

What was bootstrapped is kept in the cache and taken again while the packages are the same. `images/README.md` has the
commands; `images/boards/` has a file for each board.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
BOARDS: Final = Path(__file__).with_name("boards")
FILES: Final = Path(__file__).with_name("files")
SAMPLE: Final = Path(__file__).with_name("provisioning.sample.toml")
SUITE: Final = "trixie"
PYTHON: Final = "313"
"""Python of the suite."""
PACKAGES: Final = (
    "systemd", "systemd-sysv", "udev", "dbus", "python3", "mosquitto", "iproute2", "initramfs-tools", "zstd",
)  # fmt: skip
NEEDED: Final = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
FOREIGN: Final = {"qemu-aarch64-static": "qemu-user-static", "arch-test": "arch-test"}
CARD: Final = {"genimage": "genimage", "mcopy": "mtools", "mkdosfs": "dosfstools"}
BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")
ARM64_MAGIC: Final = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
ARM64_MASK: Final = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
UNITS: Final = ("edgert-gateway.service",)
MASKED: Final = (
    "systemd-update-done.service", "systemd-journal-catalog-update.service", "systemd-hwdb-update.service",
    "ldconfig.service", "getty@tty1.service", "serial-getty@.service",
)  # fmt: skip
"""They would write to the root file system at each start, or offer a login to nobody."""
DATA_MIB: Final = 256


class BuildError(Exception):
    """The image cannot be built; the message says why, and what to do."""


def run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    """The one door to other programs. Raises `BuildError` with the end of what the program said."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise BuildError(f"{command[0]} failed (status {done.returncode}):\n{said}")


def say(text: str) -> None:
    print(f"image: {text}", flush=True)


class Image:
    """The image of one board."""

    def __init__(self, board: str, cache: Path, out: Path, *, open_broker: bool) -> None:
        """`open_broker`: sensors may reach the board's broker and its page from other machines, without a password."""
        try:
            self.spec: dict[str, Any] = tomllib.loads((BOARDS / f"{board}.toml").read_text())
        except FileNotFoundError:
            known = ", ".join(sorted(path.stem for path in BOARDS.glob("*.toml")))
            raise BuildError(f"expected one of the boards {known}, got {board!r}") from None
        self.board, self.cache, self.out, self.open_broker = board, cache, out, open_broker
        self.packages = sorted({*PACKAGES, self.spec["kernel"], *self.spec.get("packages", [])})
        self.work = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/var/tmp") / f"edgert-image-{board}"
        self.tree = self.work / "root"

    @property
    def _foreign(self) -> bool:
        """Whether this machine runs the board's programs by emulation only."""
        return os.uname().machine != {"amd64": "x86_64", "arm64": "aarch64"}[self.spec["architecture"]]

    def build(self) -> None:
        """All steps."""
        self._check()
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.out.mkdir(parents=True, exist_ok=True)
        try:
            self._step("Debian packages", self._bootstrap)
            self._step("edgert and its Python packages", self._install)
            self._step("units and settings", self._configure)
            self._step("file systems", self._file_systems)
            if "card" in self.spec:
                self._step("card", self._card)
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
        say(f"done: {self.out}")

    def _step(self, what: str, do: Any) -> None:
        began = time.monotonic()
        say(f"{what} ...")
        do()
        say(f"{what}: {time.monotonic() - began:.0f} s")

    def _check(self) -> None:
        if os.geteuid():
            raise BuildError("expected root: file owners of the image are set")
        needed = NEEDED | (FOREIGN if self._foreign else {}) | (CARD if "card" in self.spec else {})
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        if missing := sorted(package for command, package in needed.items() if not shutil.which(command, path=path)):
            raise BuildError(f"missing here: apt-get install {' '.join(missing)}")

    def _bootstrap(self) -> None:
        if self._foreign:
            _emulate_arm64()
        key = hashlib.sha256(json.dumps([SUITE, self.packages]).encode()).hexdigest()[:12]
        kept = self.cache / f"{self.board}-{key}.tar"
        if not kept.exists():
            self.cache.mkdir(parents=True, exist_ok=True)
            unfinished = kept.with_suffix(".new.tar")
            run(
                "mmdebstrap", "--variant=minbase", f"--architectures={self.spec['architecture']}",
                f"--include={','.join(self.packages)}", SUITE, unfinished,
            )  # fmt: skip
            unfinished.rename(kept)
        self.tree.mkdir()
        run("tar", "-xf", kept, "-C", self.tree, "--numeric-owner")

    def _install(self) -> None:
        pip = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "-q")
        locked = ROOT / "requirements" / "device.txt"
        key = hashlib.sha256(locked.read_bytes()).hexdigest()[:12]
        wheels = self.cache / f"wheels-{self.spec['architecture']}-{key}"
        platform = [argument for name in self.spec["wheels"] for argument in ("--platform", name)]
        target = ("--python-version", PYTHON, "--only-binary=:all:", "--no-deps", *platform)
        run(*pip, "download", "--require-hashes", "-r", locked, *target, "-d", wheels)
        ours = self.work / "ours"
        run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", ours, ROOT)
        folder = self.tree / "opt" / "edgert"
        run(*pip, "install", "--target", folder / "lib", *target, "--no-index", "--no-compile", "--find-links", wheels,
            "--find-links", ours, *sorted(wheels.glob("*.whl")), *ours.glob("*.whl"))  # fmt: skip
        shutil.rmtree(folder / "lib" / "bin", ignore_errors=True)
        for name, module in (("edgert-gateway", "gateway"), ("edgert-agent", "agent"), ("edgert", "edgert")):
            script = folder / "bin" / name
            script.parent.mkdir(exist_ok=True)
            script.write_text(f'#!/bin/sh\nPYTHONPATH=/opt/edgert/lib exec python3 -P -m {module} "$@"\n')
            script.chmod(0o755)

    def _configure(self) -> None:
        """No host key, password or machine id is in an image; the root file system is never written."""
        shutil.copytree(FILES, self.tree, dirs_exist_ok=True)
        broker = (
            "listener 1883\nallow_anonymous true\n"
            if self.open_broker
            else "listener 1883 127.0.0.1\nallow_anonymous true\n"
        )
        listener = self.tree / "var/edgert/mosquitto/listener.conf"  # provisioning writes another
        listener.parent.mkdir(parents=True)
        listener.write_text(broker)
        (self.tree / "etc/mosquitto/conf.d/listener.conf").symlink_to("/var/edgert/mosquitto/listener.conf")
        settings = self.tree / "var/edgert/gateway.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        page = 'host = "0.0.0.0"\n' if self.open_broker else ""
        settings.write_text(f'[gateway]\nid = "edgert-{self.board}"\n\n[web]\n{page}')
        config = self.tree / "etc/edgert"
        config.mkdir(exist_ok=True)
        (config / "gateway.toml").symlink_to("/var/edgert/gateway.toml")
        wanted = self.tree / "etc/systemd/system/multi-user.target.wants"
        wanted.mkdir(parents=True, exist_ok=True)
        for unit in UNITS:
            shutil.copy(ROOT / "systemd" / unit, self.tree / "etc/systemd/system" / unit)
            (wanted / unit).symlink_to(f"/etc/systemd/system/{unit}")
        (wanted / "edgert-provision.service").symlink_to("/etc/systemd/system/edgert-provision.service")
        (wanted / "systemd-networkd.service").symlink_to("/usr/lib/systemd/system/systemd-networkd.service")
        for unit in MASKED:
            (self.tree / "etc/systemd/system" / unit).symlink_to("/dev/null")
        (self.tree / "etc/hostname").write_text(f"edgert-{self.board}\n")
        (self.tree / "etc/machine-id").write_text("")
        for name in ("var/lib/dbus/machine-id", "etc/resolv.conf", "var/lib/systemd/random-seed"):
            (self.tree / name).unlink(missing_ok=True)
        listed = subprocess.run(
            ["dpkg-query", f"--admindir={self.tree}/var/lib/dpkg", "-W", "-f", "${Package} ${Version}\n"],
            capture_output=True, text=True, check=True,
        ).stdout.split("\n")  # fmt: skip
        wheels = sorted(path.name for path in (self.tree / "opt/edgert/lib").glob("*.dist-info"))
        (self.out / "packages.json").write_text(json.dumps({"debian": list(filter(None, listed)), "python": wheels}))

    def _file_systems(self) -> None:
        boot = self.tree / "boot"
        shutil.copy(next(boot.glob("vmlinuz-*")), self.out / "vmlinuz")
        shutil.copy(next(boot.glob("initrd.img-*")), self.out / "initrd.img")
        data = self.work / "data"
        shutil.rmtree(self.tree / "var/cache/apt", ignore_errors=True)
        shutil.rmtree(self.tree / "var/lib/apt", ignore_errors=True)
        (self.tree / "var").rename(data)
        (self.tree / "var").mkdir()
        _ext4(data, self.out / "data.ext4", "edgert-data", DATA_MIB)
        used = sum(f.lstat().st_size for f in self.tree.rglob("*") if f.is_file() and not f.is_symlink()) >> 20
        _ext4(self.tree, self.out / "root.ext4", "edgert-root", used + used // 4 + 64)

    def _card(self) -> None:
        """A card as the firmware of the board wants it: FAT with firmware and kernel, root, data."""
        card, fat = self.spec["card"], self.work / "fat"
        fat.mkdir()
        firmware = self.tree / "usr/lib/raspi-firmware"
        for name in card["firmware"]:
            shutil.copy(firmware / name, fat)
        shutil.copy(next(self.tree.glob(f"usr/lib/linux-image-*/{card['device_tree']}")), fat)
        for name in ("vmlinuz", "initrd.img"):
            shutil.copy(self.out / name, fat)
        shutil.copy(SAMPLE, fat / "edgert.sample.toml")
        (fat / "config.txt").write_text(card["config"].lstrip())
        (fat / "cmdline.txt").write_text(f"root=LABEL=edgert-root ro rootwait console={card['console']} panic=10\n")
        described = self.work / "genimage.cfg"
        names = "\n".join(f'file {path.name} {{ image = "{path}" }}' for path in sorted(fat.iterdir()))
        described.write_text(
            f'image boot.vfat {{ size = 192M\n vfat {{ label = "EDGERT" \n {names} }} }}\n'
            "image card.img { hdimage { partition-table-type = mbr }\n"
            ' partition boot { partition-type = 0x0c bootable = true image = "boot.vfat" }\n'
            f' partition root {{ partition-type = 0x83 image = "{self.out / "root.ext4"}" }}\n'
            f' partition data {{ partition-type = 0x83 image = "{self.out / "data.ext4"}" }} }}\n'
        )
        (self.work / "empty").mkdir()
        run("genimage", "--config", described, "--rootpath", self.work / "empty", "--tmppath", self.work / "tmp",
            "--inputpath", "/", "--outputpath", self.out)  # fmt: skip


def _emulate_arm64() -> None:
    """Lets the kernel run arm64 programs by QEMU; it stays so until the next start of this machine."""
    if (BINFMT / "qemu-aarch64").exists():
        return
    if not (BINFMT / "register").exists():
        run("mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT)
    emulator = shutil.which("qemu-aarch64-static")
    (BINFMT / "register").write_text(f":qemu-aarch64:M::{ARM64_MAGIC}:{ARM64_MASK}:{emulator}:F")


def _ext4(tree: Path, image: Path, label: str, mib: int) -> None:
    image.unlink(missing_ok=True)
    path = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    run("mke2fs", "-q", "-t", "ext4", "-L", label, "-m", "0", "-d", tree, image, f"{mib}M", env=path)


def main(argv: Sequence[str] | None = None) -> int:
    """Builds one image; returns the exit status."""
    boards = ", ".join(sorted(path.stem for path in BOARDS.glob("*.toml")))
    parser = argparse.ArgumentParser("images/build.py", description="Builds the image of a board. Needs root.")
    parser.add_argument("board", help=f"one of {boards}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgert-images"
    parser.add_argument("--cache", type=Path, default=cache, help=f"what is kept between builds ({cache})")
    parser.add_argument("--out", type=Path, help="folder of the result (build/images/BOARD)")
    parser.add_argument(
        "--open-broker", action="store_true",
        help="anybody on the network may reach the board's broker and page: for trying, and for a network of its own",
    )  # fmt: skip
    args = parser.parse_args(argv)
    out = args.out or ROOT / "build" / "images" / args.board
    try:
        Image(args.board, args.cache, out.absolute(), open_broker=args.open_broker).build()
    except BuildError as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
