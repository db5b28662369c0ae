"""A file system depends on its files and one time alone, and is whole."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from images import ext4
from images.programs import SYSTEM_FOLDERS, BuildError, run

EPOCH = 1_700_000_000
pytestmark = pytest.mark.skipif(
    shutil.which("mke2fs", path=f"{os.environ['PATH']}:{SYSTEM_FOLDERS}") is None, reason="needs mke2fs"
)


def tree(folder: Path, mtime: float) -> Path:
    (folder / "etc/with space").mkdir(parents=True)
    (folder / "etc/with space/file").write_text("content")
    (folder / "link").symlink_to("etc/with space/file")
    (folder / "old").write_text("of a package")
    os.utime(folder / "old", (1_600_000_000, 1_600_000_000))
    for name in ("etc/with space/file", "etc"):
        os.utime(folder / name, (mtime, mtime))
    return folder


@pytest.mark.parametrize("journal", [True, False])
def test_two_trees_with_the_same_files_are_the_same_image(tmp_path: Path, journal: bool) -> None:
    images = []
    for name, mtime in (("a", 1_800_000_000), ("b", 1_900_000_000)):
        made = tree(tmp_path / name, mtime)
        image = tmp_path / f"{name}.ext4"
        ext4.write(made, image, "edgert-root", ext4.needed_mib(made) + 16 * journal, EPOCH, journal=journal)
        images.append(image.read_bytes())
    assert images[0] == images[1]
    checked = subprocess.run(
        ["e2fsck", "-fn", str(tmp_path / "a.ext4")], capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{os.environ['PATH']}:{SYSTEM_FOLDERS}"},
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


def test_times_of_packages_stay_and_those_of_the_build_do_not(tmp_path: Path) -> None:
    made = tree(tmp_path / "a", 1_800_000_000)
    ext4.settle(made, EPOCH)
    assert (made / "old").stat().st_mtime == 1_600_000_000
    assert (made / "etc/with space/file").stat().st_mtime == EPOCH
    assert (made / "link").lstat().st_mtime == EPOCH


def test_another_file_is_another_image(tmp_path: Path) -> None:
    made = tree(tmp_path / "a", 1_800_000_000)
    for name in ("one", "two"):
        (made / "old").write_text(name)
        ext4.write(made, tmp_path / name, "edgert-root", 16, EPOCH, journal=False)
    assert (tmp_path / "one").read_bytes() != (tmp_path / "two").read_bytes()


def test_a_file_of_an_image_gets_new_content_or_goes(tmp_path: Path) -> None:
    made, image, back = tree(tmp_path / "a", 1_800_000_000), tmp_path / "image", tmp_path / "back"
    ext4.write(made, image, "edgert-root", 16, EPOCH, journal=False)
    ext4.change(image, "/old", "of an update")
    back.mkdir()
    run("debugfs", "-R", f"rdump / {back}", image)
    assert (back / "old").read_text() == "of an update"
    ext4.change(image, "/old", "")
    with pytest.raises(BuildError, match="cannot change /old: rm: File not found"):
        ext4.change(image, "/old", "of a later update")
