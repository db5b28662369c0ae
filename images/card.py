"""The card (or disk) of a board: boot loader, boot state, FAT partition, slot A, an empty slot B, data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from images import debian, layout
from images.programs import BuildError, run

LOADERS: Final = Path(__file__).with_name("loaders")
SAMPLE: Final = Path(__file__).with_name("provisioning.sample.toml")
WATCHDOG: Final = "watchdog.open_timeout=900"
"""A word of cmdline.txt. The kernel keeps a watchdog that it found running alive for so long, until systemd takes it
over. U-Boot starts the watchdog of a board whose firmware hands this word over."""
FIELDS: Final = {
    "@ATTEMPTS@": str(layout.ATTEMPTS), "@SECTOR@": hex(layout.STATE_OFFSET // layout.SECTOR), "@WATCHDOG@": WATCHDOG,
}  # fmt: skip
ENVIRONMENT: Final = "uboot.env"
ENVIRONMENT_SIZE: Final = 0x4000
"""Bytes of the environment: the only size that u-boot-rpi takes."""
FAT_ID: Final = "0ED6E870"
GRUB_MODULES: Final = (
    "part_msdos", "fat", "ext2", "memdisk", "tar", "normal", "linux", "loadenv", "test", "echo", "sleep", "reboot",
    "serial", "terminal", "regexp",
)  # fmt: skip
UEFI_LOADER: Final = "EFI/BOOT/BOOTX64.EFI"
"""Where UEFI looks for the boot loader of a disk that it does not know yet."""


class Card:
    """Puts a card together in the folder `work`, from the file systems that are in `out`."""

    def __init__(self, spec: Mapping[str, Any], archive: debian.Archive, work: Path, out: Path) -> None:
        self._spec: Mapping[str, Any] = spec["card"]
        self._archive, self._work, self._out = archive, work, out
        self._fat = work / "fat"

    def write(self, firmware: Path, device_trees: Path) -> None:
        """Writes `card.img`. `firmware` and `device_trees` are folders with what packages brought."""
        self._fat.mkdir()
        shutil.copy(SAMPLE, self._fat / "edgert.sample.toml")
        loader = self._spec["loader"]
        if loader == "grub":
            (self._fat / "grubenv").write_bytes(layout.grub_state(layout.GRUB_STATE))
        else:
            self._u_boot()
        for name in self._spec.get("firmware", ()):
            shutil.copy(firmware / "usr/lib/raspi-firmware" / name, self._fat)
        for name in self._spec.get("device_trees", ()):
            shutil.copy(device_trees / name, self._fat)
        for name, text in self._spec.get("files", {}).items():
            (self._fat / name).write_text(text.lstrip())
        self._assemble()
        with (self._out / "card.img").open("rb+") as card:
            if loader == "grub":
                self._grub(card)
            else:
                card.seek(layout.STATE_OFFSET)
                card.write(layout.u_boot_state(layout.U_BOOT_STATE))

    def _grub(self, card: BinaryIO) -> None:
        """GRUB with its script in it, twice: for a BIOS behind the master boot record, for UEFI on the FAT partition.

        GRUB writes only to files, so its boot state is one of the FAT partition. Linux finds it by its place, and need
        not mount that partition. UEFI's file has that place in it, so it is written when the place is known."""
        fat = self._out / "boot.vfat"
        script = self._work / "memdisk" / "boot" / "grub"
        script.mkdir(parents=True)
        state = layout.FAT_OFFSET + fat.read_bytes().find(layout.GRUB_HEAD)
        (script / "grub.cfg").write_text(filled("grub.cfg", self._spec["console"], str(state)))
        run("tar", "--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-cf", self._work / "memdisk.tar",
            "-C", self._work / "memdisk", "boot")  # fmt: skip
        modules, core = self._grub_image("grub-pc-bin", "i386-pc", "biosdisk")
        if core.stat().st_size > layout.STATE_OFFSET - layout.SECTOR:
            raise BuildError(f"expected GRUB to end before the boot state, got {core.stat().st_size} bytes")
        card.write((modules / "boot.img").read_bytes()[: layout.BOOT_CODE])
        card.seek(layout.SECTOR)
        card.write(core.read_bytes())
        _, loader = self._grub_image("grub-efi-amd64-bin", "x86_64-efi")
        folder = Path(UEFI_LOADER).parent
        run("mmd", "-i", fat, f"::{folder.parent}", f"::{folder}")
        run("mcopy", "-i", fat, loader, f"::{UEFI_LOADER}")
        card.seek(layout.FAT_OFFSET)
        card.write(fat.read_bytes())

    def _grub_image(self, package: str, platform: str, *modules: str) -> tuple[Path, Path]:
        """Returns the folder of GRUB's modules for a firmware, and GRUB itself."""
        tree, image = self._work / platform, self._work / f"grub-{platform}"
        tree.mkdir()
        debian.unpack(self._archive.fetch(package), tree)
        folder = tree / "usr/lib/grub" / platform
        run("grub-mkimage", "-O", platform, "-d", folder, "-o", image, "-m", self._work / "memdisk.tar",
            "-p", "(memdisk)/boot/grub", *GRUB_MODULES, *modules)  # fmt: skip
        os.utime(image, (0, int(os.environ["SOURCE_DATE_EPOCH"])))
        return folder, image

    def _u_boot(self) -> None:
        """U-Boot reads its script from the FAT partition. On QEMU's machine it is the firmware; a card brings it."""
        for name, package, member in self._spec.get("u_boot", ()):
            tree = self._work / "u-boot"
            tree.mkdir(exist_ok=True)
            debian.unpack(self._archive.fetch(package), tree)
            shutil.copy(tree / member, self._fat / name)
        if "environment" in self._spec:
            variables = layout.u_boot_state(self._spec["environment"], ENVIRONMENT_SIZE)
            (self._fat / ENVIRONMENT).write_bytes(variables)
        text = self._work / "u-boot.txt"
        text.write_text(filled("u-boot.txt", self._spec["console"]))
        run("mkimage", "-A", "arm64", "-T", "script", "-C", "none", "-n", "edgert", "-d", text, self._fat / "boot.scr")

    def _assemble(self) -> None:
        described = self._work / "genimage.cfg"
        files = "\n".join(f'file {path.name} {{ image = "{path}" }}' for path in sorted(self._fat.iterdir()))
        described.write_text(
            f"image boot.vfat {{ size = {layout.FAT_MIB}M\n"
            f' vfat {{ label = "EDGERT" extraargs = "-i {FAT_ID} --invariant"\n {files} }} }}\n'
            "image card.img { hdimage { partition-table-type = mbr align = 1M }\n"
            " partition boot { partition-type = 0x0c bootable = true"
            f' image = "boot.vfat" offset = {layout.FAT_OFFSET} }}\n'
            f' partition a {{ partition-type = 0x83 image = "{self._out / "root.ext4"}" size = {layout.SLOT_MIB}M }}\n'
            f" partition b {{ partition-type = 0x83 size = {layout.SLOT_MIB}M }}\n"
            f' partition data {{ partition-type = 0x83 image = "{self._out / "data.ext4"}" }} }}\n'
        )
        (self._work / "empty").mkdir()
        run("genimage", "--config", described, "--rootpath", self._work / "empty", "--tmppath", self._work / "tmp",
            "--inputpath", "/", "--outputpath", self._out)  # fmt: skip


def filled(name: str, console: str, state: str = "") -> str:
    """The script of a boot loader, with what a board and its disk have in the place of the fields. `state` is where on
    the disk GRUB's boot state is."""
    text = (LOADERS / name).read_text()
    for field, value in {**FIELDS, "@CONSOLE@": console, "@STATE@": state}.items():
        text = text.replace(field, value)
    return text
