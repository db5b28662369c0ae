"""Debian's packages for a board: looked up and fetched by apt, unpacked by this machine's own tools.

Only what runs programs of the packages (the base system) needs emulation for a foreign board. Bookworm's qemu-user runs
them six times slower than that of trixie, so the emulator is taken from the suite of the image.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from images.programs import BuildError, run

SUITE: Final = "trixie"
SOURCES: Final = (
    ("http://deb.debian.org/debian", SUITE),
    ("http://deb.debian.org/debian", f"{SUITE}-updates"),
    ("http://security.debian.org/debian-security", f"{SUITE}-security"),
)
KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
COMPONENTS: Final = "main non-free-firmware"
"""The firmware of a Raspberry Pi is in non-free-firmware."""
BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")
ARM64_MAGIC: Final = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
ARM64_MASK: Final = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
UNREAD: Final = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/usr/share/info/*")
READ: Final = ("/usr/share/doc/*/copyright",)
"""Licences stay."""


class Archive:
    """Packages of one architecture, kept in a folder; apt is asked for those that are not there."""

    def __init__(self, architecture: str, cache: Path) -> None:
        self._architecture = architecture
        self._folder = cache / f"debs-{architecture}"
        self._state = cache / f"apt-{architecture}"
        self._asked = False
        self.taken: set[Path] = set()
        """The packages that were asked for."""

    def fetch(self, package: str) -> Path:
        """The file of a package: the one kept, or else the newest of the suite."""
        if not list(self._folder.glob(f"{package}_*.deb")):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._apt("apt-get", "download", package)
        [kept] = self._folder.glob(f"{package}_*.deb")
        self.taken.add(kept)
        return kept

    def kernel(self, package: str) -> Path:
        """The kernel that a package such as `linux-image-arm64` stands for."""
        wanted = dependencies(self.fetch(package))
        found = [name for name in wanted if name.startswith("linux-image-")]
        if len(found) != 1:
            raise BuildError(f"expected {package} to depend on one kernel, got {wanted}")
        return self.fetch(found[0])

    def _apt(self, command: str, *arguments: str) -> None:
        lists, sources = self._state / "lists", self._state / "sources.list"
        options = [
            f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=-", f"Dir::State::lists={lists}",
            f"Dir::Cache={self._state}", "Dir::State::status=/dev/null", "APT::Sandbox::User=root",
            f"APT::Architecture={self._architecture}", f"APT::Architectures={self._architecture}",
        ]  # fmt: skip
        given = [argument for option in options for argument in ("-o", option)]
        if not self._asked:
            (lists / "partial").mkdir(parents=True, exist_ok=True)
            sources.write_text("".join(f"{line} {COMPONENTS}\n" for line in source_lines()))
            run("apt-get", *given, "update")
            self._asked = True
        run(command, *given, *arguments, folder=self._folder)


def source_lines() -> list[str]:
    """The suite, its updates and its security updates, as apt's lines without components."""
    return [f"deb [signed-by={KEYRING}] {mirror} {suite}" for mirror, suite in SOURCES]


def dependencies(deb: Path) -> list[str]:
    """Names of the packages that a package depends on, without versions."""
    said = subprocess.run(["dpkg-deb", "-f", deb, "Depends"], capture_output=True, text=True, check=True).stdout
    return [part.split()[0] for part in said.split(",") if part.strip()]


def unpack(deb: Path, tree: Path, *members: str) -> None:
    """The files of a package (all, or `members`) in a tree; its scripts do not run."""
    unpacked = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
    tar = ["tar", "-x", "--keep-directory-symlink", "--numeric-owner", "-C", str(tree), "-f", "-", *members]
    done = subprocess.run(tar, stdin=unpacked.stdout, capture_output=True, text=True, check=False)
    if unpacked.wait() or done.returncode:
        raise BuildError(f"cannot unpack {deb}: {done.stderr.strip()}")


def bootstrap(architecture: str, packages: Sequence[str], kept: Path) -> None:
    """A root file system with `packages` as the tar file `kept`; in memory, as dpkg waits for the disk at each file."""
    unfinished = kept.with_suffix(".new.tar")
    options = ["force-unsafe-io", *(f"path-exclude={path}" for path in UNREAD), *(f"path-include={p}" for p in READ)]
    memory = Path("/dev/shm")
    env = {**os.environ, "TMPDIR": str(memory)} if os.access(memory, os.W_OK) else None
    run(
        "mmdebstrap", "--variant=minbase", f"--architectures={architecture}", f"--include={','.join(packages)}",
        *(f"--dpkgopt={option}" for option in options), '--aptopt=Acquire::Languages "none"', SUITE, unfinished,
        *(f"{line} main" for line in source_lines()),
        env=env,
    )  # fmt: skip
    unfinished.rename(kept)


def emulate_arm64(cache: Path, binfmt: Path = BINFMT) -> None:
    """Lets the kernel run arm64 programs by the QEMU of trixie; it stays so until the next start of this machine.

    mmdebstrap looks for the emulator under the name that Debian's packages give it: an entry of theirs is replaced."""
    emulator = cache / "qemu" / "usr" / "bin" / "qemu-aarch64"
    if not (binfmt / "register").exists():
        run("mount", "-t", "binfmt_misc", "binfmt_misc", binfmt)
    entry = binfmt / "qemu-aarch64"
    if entry.exists():
        if f"interpreter {emulator}\n" in entry.read_text():
            return
        entry.write_text("-1")  # the kernel removes it
    if not emulator.exists():
        emulator.parents[2].mkdir(parents=True, exist_ok=True)
        host = "arm64" if os.uname().machine == "aarch64" else "amd64"
        unpack(Archive(host, cache).fetch("qemu-user"), emulator.parents[2], "./usr/bin/qemu-aarch64")
    (binfmt / "register").write_text(f":{entry.name}:M::{ARM64_MAGIC}:{ARM64_MASK}:{emulator}:F")
