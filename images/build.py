"""Builds the image of a board: `python3 -m images.build BOARD`, as root.

    packages of Debian trixie ─┐
    kernel of the board ───────┤
    wheels of requirements/ ───┼─▶ root file system (read-only) ─▶ root.ext4, vmlinuz, initrd.img
    units, settings ───────────┘   /var of it (the data)         ─▶ data.ext4
                                                                    card.img, for a board that boots from a card

The base system is the same for all boards of an architecture, and kept in the cache while its packages are the same.
`images/README.md` has the commands; `images/boards/` has a file for each board.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import edgert
from images import check, debian, ext4, initramfs, layout, sbom, updates
from images.card import Card
from images.check import SYSTEM_UNITS, memory
from images.programs import SYSTEM_FOLDERS, BuildError, run

ROOT: Final = Path(__file__).resolve().parents[1]
BOARDS: Final = Path(__file__).with_name("boards")
FILES: Final = Path(__file__).with_name("files")
PYTHON: Final = "313"
"""Python of the suite."""
PACKAGES: Final = (
    "systemd", "systemd-sysv", "systemd-resolved", "systemd-timesyncd", "udev", "dbus", "kmod", "python3", "mosquitto",
    "iproute2", "rauc", "rauc-service", "libdevmapper1.02.1", "libubootenv-tool",
)  # fmt: skip
UNPACKED: Final = (
    "e2fsprogs", "libext2fs2t64", "libss2", "libcom-err2", "dropbear-bin", "libtomcrypt1", "libtommath1",
    "wpasupplicant", "libnl-3-200", "libnl-genl-3-200", "libnl-route-3-200", "libpcsclite1", "wireless-regdb",
)  # fmt: skip
"""Check and growth of file systems, SSH, and Wi-Fi; no script of theirs is needed."""
NEEDED: Final = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "depmod": "kmod"}
FOREIGN: Final = {"arch-test": "arch-test"}
CARD: Final = {"genimage": "genimage", "mcopy": "mtools", "mkdosfs": "dosfstools"}
LOADER: Final = {"grub": {"grub-mkimage": "grub-common"}, "u-boot": {"mkimage": "u-boot-tools"}}
UNITS: Final = ("edgert-gateway.service", "edgert-agent.service")
WANTED_UNITS: Final = ("edgert-agent-key.path", "edgert-agent-key.service")
"""Units that those start."""
OWN_UNITS: Final = (
    "edgert-provision.service", "edgert-confirm.service", "edgert-update.path", "edgert-revoked.path",
    "edgert-broker-save.path",
    "edgert-renewal.timer", "edgert-enrolment.service", "edgert-ssh.service", "edgert-wifi.service",
)  # fmt: skip
"""Units of `files/` that are to be started with the board."""
GROUP, GROUP_ID = "edgert-board", 900
"""Reads the key of the board's certificate; see provisioning/on_board.py and the drop-in of the gateway's unit."""
MASKED: Final = (
    "systemd-update-done.service", "systemd-journal-catalog-update.service", "systemd-hwdb-update.service",
    "ldconfig.service", "getty@tty1.service", "serial-getty@.service", "systemd-logind.service",
    "systemd-user-sessions.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
    "e2scrub_all.timer", "modprobe@drm.service", "modprobe@efi_pstore.service", "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount", "dev-hugepages.mount",
)  # fmt: skip
"""Units that are masked: they would write to the root file system, offer a login to no one, or make each start longer
for no use."""
CLOSED: Final = (
    "# The board's broker and page are for the board alone, until a provisioning file says otherwise.\n"
    '[broker]\nlisten = ""\n'
)
OPEN: Final = '[broker]\nlisten = "0.0.0.0"\ncontrol = true\n\n[web]\nhost = "0.0.0.0"\n'
SCRIPTS: Final = ("../../bin/", "bin/")
"""The folder of commands in a list of `pip install --target`."""
UNUSED_MODULES: Final = ("drivers/gpu", "drivers/media", "drivers/infiniband", "sound")
"""A gateway has no screen, camera or loudspeaker."""


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
        self.epoch = commit_time()
        os.environ["SOURCE_DATE_EPOCH"] = str(self.epoch)  # for mmdebstrap, wheels, and the tools of file systems
        self.architecture: str = self.spec["architecture"]
        self.archive = debian.Archive(self.architecture, cache)
        self.work = Path()

    @property
    def tree(self) -> Path:
        """The root file system."""
        return self.work / "root"

    @property
    def _foreign(self) -> bool:
        """True if this machine runs the board's programs by emulation only."""
        return self.architecture != self._native

    @property
    def _native(self) -> str:
        """The architecture of this machine, by Debian's name."""
        machine = os.uname().machine
        return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)

    def build(self) -> None:
        """All steps."""
        self._check()
        self.work = Path(tempfile.mkdtemp(prefix="edgert-image-", dir=memory()))
        self.out.mkdir(parents=True, exist_ok=True)
        try:
            self._step("base system", self._bootstrap)
            self._step("kernel", self._kernel)
            self._step("edgert and its Python packages", self._install)
            self._step("units and settings", self._configure)
            self._step("file systems", self._file_systems)
            self._step("card", self._card)
            self._step("list of packages", self._list)
            self._step("check", self._look_into)
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
        say(f"done: {self.out}")
        if "vendor" in self.spec["card"]:
            say(f"before it starts: python3 -m images.vendor {self.board} --boot-loader FILE (docs/board.md)")

    def _step(self, what: str, do: Callable[[], None]) -> None:
        began = time.monotonic()
        say(f"{what} ...")
        do()
        say(f"{what}: {time.monotonic() - began:.0f} s")

    def _check(self) -> None:
        if os.geteuid():
            raise BuildError("expected root: file owners of the image are set")
        needed = NEEDED | (FOREIGN if self._foreign else {}) | CARD | LOADER[self.spec["card"]["loader"]]
        path = f"{os.environ['PATH']}:{SYSTEM_FOLDERS}"
        if missing := sorted(package for command, package in needed.items() if not shutil.which(command, path=path)):
            raise BuildError(f"missing here: apt-get install {' '.join(missing)}")

    def _bootstrap(self) -> None:
        self._base(self.architecture, self.tree)

    def _base(self, architecture: str, tree: Path) -> None:
        """The base system of an architecture, in a folder that is not there yet."""
        key = hashlib.sha256(json.dumps([debian.SUITE, PACKAGES, debian.UNREAD]).encode()).hexdigest()[:12]
        kept = self.cache / f"base-{architecture}-{key}.tar"
        if not kept.exists():
            self.cache.mkdir(parents=True, exist_ok=True)
            if architecture != self._native:
                debian.emulate_arm64(self.cache)
            debian.bootstrap(architecture, PACKAGES, kept)
        tree.mkdir()
        run("tar", "-xf", kept, "-C", tree, "--numeric-owner")

    def _kernel(self) -> None:
        """Kernel, modules, and what else needs no script of its package, so that nothing is emulated."""
        debian.unpack(self.archive.kernel(self.spec["kernel"]), self.tree)
        for package in UNPACKED:
            debian.unpack(self.archive.fetch(package), self.tree)
        for name in ("regulatory.db", "regulatory.db.p7s"):  # which channels a country allows; a script links it
            (self.tree / "usr/lib/firmware" / name).symlink_to(f"{name}-upstream")
        [modules] = (self.tree / "usr/lib/modules").iterdir()
        for name in UNUSED_MODULES:
            shutil.rmtree(modules / "kernel" / name, ignore_errors=True)
        for folder in self.tree.glob("usr/lib/linux-image-*"):  # device trees, of all boards that Debian knows
            folder.rename(self.work / "device_trees")
        run("depmod", "-b", self.tree / "usr", modules.name)
        busybox = self.work / "busybox"
        busybox.mkdir()
        debian.unpack(self.archive.fetch("busybox-static"), busybox, "./usr/bin/busybox")
        first = initramfs.build(busybox / "usr/bin/busybox", modules, self.spec["modules"])
        (self.out / "initrd.img").write_bytes(first)
        [kernel] = (self.tree / "boot").glob("vmlinuz-*")
        shutil.copy(kernel, self.out / "vmlinuz")
        for path in (self.tree / "boot").iterdir():
            path.unlink()
        for name in ("vmlinuz", "initrd.img"):  # of a slot: the boot loader takes them from there
            shutil.copy(self.out / name, self.tree / "boot" / name)
        for name in self.spec.get("device_trees", ()):
            place = self.tree / "boot/dtb" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.work / "device_trees" / name, place)
        if "firmware" in self.spec["card"]:
            self._firmware()

    def _firmware(self) -> None:
        """Adds the firmware that the board's own boot loader reads, and that of its radio."""
        if (self.out / "vmlinuz").read_bytes()[4:8] == b"zimg":
            raise BuildError("expected a plain arm64 kernel, got one that only an EFI firmware unpacks")
        firmware = self.work / "firmware"
        firmware.mkdir()
        debian.unpack(self.archive.fetch("raspi-firmware"), firmware)
        shutil.copytree(firmware / "usr/lib/firmware", self.tree / "usr/lib/firmware", dirs_exist_ok=True)
        if package := self.spec["card"].get("radio"):
            debian.unpack(self.archive.fetch(package["package"]), self.tree, "--wildcards", *package["files"])

    def _install(self) -> None:
        pip = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "-q")
        locked = ROOT / "requirements" / "device.txt"
        key = hashlib.sha256(locked.read_bytes()).hexdigest()[:12]
        wheels = self.cache / f"wheels-{self.architecture}-{key}"
        platform = [argument for name in self.spec["wheels"] for argument in ("--platform", name)]
        target = ("--python-version", PYTHON, "--only-binary=:all:", "--no-deps", *platform)
        run(*pip, "download", "--require-hashes", "-r", locked, *target, "-d", wheels)
        shutil.rmtree(
            ROOT / "build" / "lib", ignore_errors=True
        )  # setuptools would pack modules that are deleted since
        ours = self.work / "ours"
        run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", ours, ROOT)
        folder = self.tree / "opt" / "edgert"
        # by name, not by path: pip would note the folders of this machine
        install = (*pip, "install", "--target", folder / "lib", *target, "--no-index", "--no-compile")
        run(*install, "--require-hashes", "-r", locked, "--find-links", wheels)
        run(*install, "edgert", "--find-links", ours)
        remove_scripts(folder / "lib")
        self._compile()
        for name, module in (("edgert-gateway", "gateway"), ("edgert-agent", "agent"), ("edgert", "edgert")):
            script = folder / "bin" / name
            script.parent.mkdir(exist_ok=True)
            script.write_text(f'#!/bin/sh\nPYTHONPATH=/opt/edgert/lib exec python3 -P -m {module} "$@"\n')
            script.chmod(0o755)
        (self.tree / "usr/bin/edgert").symlink_to("/opt/edgert/bin/edgert")

    def _compile(self) -> None:
        """The root is read-only, so Python could not keep what it compiles; at each start it would compile anew.

        The result is the same on all architectures, and the Python of this machine's base system needs no emulation."""
        python, ours = self.tree, self.tree / "opt/edgert"
        if self._foreign:
            python = self.work / "native"
            self._base(self._native, python)
            ours.rename(python / "opt/edgert")
        run("chroot", python, "/usr/bin/python3", "-P", "-m", "compileall", "-q",
            "--invalidation-mode", "unchecked-hash", "/opt/edgert/lib")  # fmt: skip
        if self._foreign:
            (python / "opt/edgert").rename(ours)
            shutil.rmtree(python)

    def _configure(self) -> None:
        """No host key, password or machine id is in an image; the root file system is never written."""
        shutil.copytree(FILES, self.tree, dirs_exist_ok=True)
        listener = self.tree / "etc/mosquitto/conf.d/listener.conf"
        listener.symlink_to("/var/edgert/mosquitto/listener.conf")
        config = self.tree / "etc/edgert"
        config.mkdir(exist_ok=True)
        for name in ("gateway.toml", "agent.toml"):
            (config / name).symlink_to(f"/var/edgert/{name}")
        with (self.tree / "etc/group").open("a") as groups:
            groups.write(f"{GROUP}:x:{GROUP_ID}:\n")
        (config / "unprovisioned.toml").write_text(OPEN if self.open_broker else CLOSED)
        wanted = self.tree / "etc/systemd/system/multi-user.target.wants"
        wanted.mkdir(parents=True, exist_ok=True)
        for unit in (*UNITS, *WANTED_UNITS):
            shutil.copy(ROOT / "systemd" / unit, self.tree / "etc/systemd/system" / unit)
        for unit in UNITS:
            (wanted / unit).symlink_to(f"/etc/systemd/system/{unit}")
        for unit in OWN_UNITS:
            (wanted / unit).symlink_to(f"/etc/systemd/system/{unit}")
        about = {"board": self.board, "version": image_version(self.epoch), "updates": True}
        (config / "image.json").write_text(json.dumps(about) + "\n")
        updates.configure(self.board, self.spec["card"]["loader"], self.archive, self.tree)
        for unit in SYSTEM_UNITS:
            (wanted / unit).symlink_to(f"/usr/lib/systemd/system/{unit}")
        for unit in MASKED:
            (self.tree / "etc/systemd/system" / unit).symlink_to("/dev/null")
        (self.tree / "etc/hostname").write_text(f"edgert-{self.board}\n")
        (self.tree / "etc/machine-id").write_text("")
        for name in ("var/lib/dbus/machine-id", "etc/resolv.conf", "var/lib/systemd/random-seed"):
            (self.tree / name).unlink(missing_ok=True)
        (self.tree / "etc/resolv.conf").symlink_to("/run/systemd/resolve/stub-resolv.conf")  # names of DHCP, or `dns`

    def _file_systems(self) -> None:
        for path in check.raised(self.tree):
            path.chmod(path.stat().st_mode & ~check.RAISED)
        data = self.work / "data"
        for name in ("cache/apt", "cache/debconf", "lib/apt"):
            shutil.rmtree(self.tree / "var" / name, ignore_errors=True)
        (self.tree / "var/lib/dpkg").rename(self.work / "dpkg")  # on a board it would not change with updates
        run("cp", "-a", self.tree / "var", self.tree / "opt/edgert/var")  # for the first script's factory reset
        (self.tree / "var").rename(data)
        (self.tree / "var").mkdir()
        ext4.write(data, self.out / "data.ext4", "edgert-data", layout.DATA_MIB, self.epoch)
        ext4.write(
            self.tree, self.out / "root.ext4", "edgert-root", ext4.needed_mib(self.tree), self.epoch, journal=False
        )

    def _card(self) -> None:
        Card(self.spec, self.archive, self.work, self.out).write(self.work / "firmware", self.work / "device_trees")

    def _list(self) -> None:
        """The packages, those of the boot loader among them."""
        name, lib = f"edgert-{self.board}", self.tree / "opt/edgert/lib"
        document = sbom.bill(name, self.tree, self.archive.taken, self.work / "dpkg", lib)
        (self.out / "sbom.json").write_text(json.dumps(document, indent=1))

    def _look_into(self) -> None:
        for line in check.check(self.board, self.out):
            say(line)


def remove_scripts(lib: Path) -> None:
    """Removes the commands of installed packages, and their lines in the packages' lists: the checksum of a command
    depends on the folder of this machine's Python, which stands in its first line."""
    shutil.rmtree(lib / "bin", ignore_errors=True)
    for record in lib.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not line.startswith(SCRIPTS)))


def image_version(epoch: int) -> str:
    """Returns what stands in an image and in its bundle: the version of edgert, and the time of the commit (UTC)."""
    return f"{edgert.__version__}+{time.strftime('%Y%m%d%H%M%S', time.gmtime(epoch))}"


def commit_time() -> int:
    """Seconds since 1970 of the commit that is built, or SOURCE_DATE_EPOCH: the latest time of a file in the image."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    said = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False)
    return int(said.stdout) if said.returncode == 0 else int((ROOT / "pyproject.toml").stat().st_mtime)


def main(argv: Sequence[str] | None = None) -> int:
    """Builds one image; returns the exit status."""
    boards = ", ".join(sorted(path.stem for path in BOARDS.glob("*.toml")))
    parser = argparse.ArgumentParser("images.build", description="Builds the image of a board. Needs root.")
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
