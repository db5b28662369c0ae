"""Parts of a board's system for updates: RAUC's settings, and the tools that write the boot state."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from images import debian, layout

BACKENDS: Final = {
    "grub": "bootloader=grub\ngrubenv=/dev/edgert/boot-state\n",
    "u-boot": f"bootloader=uboot\nboot-attempts={layout.ATTEMPTS}\nboot-attempts-primary={layout.ATTEMPTS}\n",
}
FW_ENV: Final = f"/dev/edgert/disk {layout.STATE_OFFSET:#x} {layout.SECTOR:#x}\n"


def configure(board: str, loader: str, archive: debian.Archive, tree: Path) -> None:
    """Writes the settings of the board's update client below `tree`, and brings GRUB's tool if the board needs it."""
    (tree / "etc/rauc").mkdir(exist_ok=True)
    (tree / "etc/rauc/system.conf").write_text(system_conf(board, loader))
    if loader == "grub":
        debian.unpack(archive.fetch("grub-common"), tree, "./usr/bin/grub-editenv")
    if loader == "u-boot":
        (tree / "etc/fw_env.config").write_text(FW_ENV)


def system_conf(board: str, loader: str) -> str:
    """RAUC's settings. Only bundles whose content is checked block by block are taken (`verity`), and only certificates
    that are for signing programs: that of a board, which the same CA signed, is none."""
    slots = "".join(
        f"\n[slot.root.{number}]\ndevice=/dev/edgert/slot-{name.lower()}\ntype=raw\nbootname={name}\n"
        for number, name in enumerate("AB")
    )
    return (
        f"[system]\ncompatible=edgert-{board}\n{BACKENDS[loader]}bundle-formats=-plain\n"
        "data-directory=/var/edgert/rauc\nmountprefix=/run/rauc\n"
        "\n[keyring]\npath=/var/edgert/identity/ca.pem\ncheck-purpose=codesign\n"
        f"{slots}"
    )
