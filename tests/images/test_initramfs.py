"""The initramfs that the builder writes, read back by a reader of its own."""

from __future__ import annotations

import gzip
import lzma
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.initramfs import INIT, build, cpio, load_order, script_of_init
from images.programs import BuildError

DEPENDENCIES = """\
kernel/fs/ext4/ext4.ko.xz: kernel/fs/mbcache.ko.xz kernel/fs/jbd2/jbd2.ko.xz
kernel/fs/jbd2/jbd2.ko.xz:
kernel/fs/mbcache.ko.xz:
kernel/drivers/mmc/host/sdhci-iproc.ko.xz: kernel/drivers/mmc/host/sdhci.ko.xz
kernel/drivers/mmc/host/sdhci.ko.xz:
"""
BUILTIN = "kernel/drivers/virtio/virtio_pci.ko\n"
NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True)


def test_modules_come_after_what_they_need_and_builtin_ones_not_at_all() -> None:
    order = load_order(DEPENDENCIES, ["virtio_pci", "sdhci_iproc", "ext4"], BUILTIN)
    assert [path.rsplit("/", 1)[-1].split(".")[0] for path in order] == [
        "sdhci", "sdhci-iproc", "mbcache", "jbd2", "ext4",
    ]  # fmt: skip


def test_a_module_that_the_kernel_does_not_have_is_named() -> None:
    with pytest.raises(BuildError, match="'virtio_block'"):
        load_order(DEPENDENCIES, ["virtio_block"], BUILTIN)


@given(NAMES, st.data())
def test_order_of_any_graph_of_modules(names: list[str], data: st.DataObject) -> None:
    needs = {name: data.draw(st.lists(st.sampled_from(names[:index]), unique=True)) if index else []
             for index, name in enumerate(names)}  # fmt: skip
    lines = "".join(f"{name}.ko: {' '.join(f'{needed}.ko' for needed in needs[name])}\n" for name in names)
    wanted = data.draw(st.lists(st.sampled_from(names), min_size=1))
    order = [path.removesuffix(".ko") for path in load_order(lines, wanted, "")]
    assert len(set(order)) == len(order)
    assert set(wanted) <= set(order)
    for place, name in enumerate(order):
        assert set(needs[name]) <= set(order[:place])


def entries(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Mode and content of the members of a cpio archive in format newc; each starts at a multiple of four bytes."""
    offset, seen = 0, dict[str, tuple[int, bytes]]()
    while True:
        assert archive[offset : offset + 6] == b"070701"
        mode, size, name_size = (int(archive[offset + at : offset + at + 8], 16) for at in (14, 54, 94))
        name = archive[offset + 110 : offset + 110 + name_size - 1].decode()
        start = (offset + 110 + name_size + 3) & ~3
        if name == "TRAILER!!!":
            return seen
        seen[name] = (mode, archive[start : start + size])
        offset = (start + size + 3) & ~3


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    for line in DEPENDENCIES.splitlines():
        path = folder / line.split(":")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(path.name.encode()))
    (folder / "modules.dep").write_text(DEPENDENCIES)
    (folder / "modules.builtin").write_text(BUILTIN)
    return folder


def test_members_and_their_modes(tmp_path: Path, modules: Path) -> None:
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF")
    seen = entries(gzip.decompress(build(busybox, modules, ["ext4"])))
    assert seen["init"] == (stat.S_IFREG | 0o755, script_of_init().encode())
    assert seen["bin/busybox"] == (stat.S_IFREG | 0o755, b"\x7fELF")
    assert seen["modules/order"][1].split() == [b"mbcache", b"jbd2", b"ext4"]
    assert seen["modules/ext4.ko"][1] == b"ext4.ko.xz"
    assert all(seen[name][0] == stat.S_IFDIR | 0o755 for name in ("proc", "sys", "dev", "root", "bin", "modules"))


def test_two_builds_are_the_same_bytes(tmp_path: Path, modules: Path) -> None:
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF")
    assert build(busybox, modules, ["ext4"]) == build(busybox, modules, ["ext4"])


@given(st.dictionaries(st.text("abc/", min_size=1, max_size=9), st.binary(max_size=9)))
def test_any_files_come_back(files: dict[str, bytes]) -> None:
    seen = entries(cpio((), {name: (0o644, content) for name, content in files.items()}))
    assert {name: content for name, (_, content) in seen.items()} == files


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_the_script_is_one_that_a_shell_can_read(tmp_path: Path) -> None:
    script = tmp_path / "init"
    script.write_text(INIT)
    subprocess.run(["sh", "-n", script], check=True)
