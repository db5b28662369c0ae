"""The first script's part of a factory reset, run by a shell of this machine, with power cuts between all its steps."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Final

import pytest

from edgert.boards.reset import MARK
from images.initramfs import INIT

STEP: Final = r"""#!/bin/sh
# the program that busybox would be, file by file; the power is cut before step $CUT
step() {
    echo >>"$COUNT"
    [ "$(wc -l <"$COUNT")" -ne "$CUT" ] || kill -9 0
}
case $1 in
rm) for last; do :; done
    find "$last" -depth 2>/dev/null | while read -r path; do step; rm -d "$path"; done ;;
cp) (cd "${3%/.}" && find . -mindepth 1 -maxdepth 1) | while read -r path; do step; cp -a "${3%/.}/$path" "$4"; done ;;
find) "$@" 2>/dev/null ;;
sync | fstrim) step ;;
*) step; "$@" ;;
esac
"""
NEW: Final = ("lib/private", "log", "tmp")
"""Folders of a newly written card."""
OLD: Final = (
    "edgert/identity/fleet.key", "lib/private/edgert/edgert.db", "lost+found/#12", ".hidden", "log/wtmp",
)  # fmt: skip


class Data:
    """A root file system with the data of a board that is to be reset."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        root = folder / "root"
        self._new, self.var = root / "opt/edgert/var", root / "var"
        self.mark = root / MARK.relative_to("/")
        for name in NEW:
            (self._new / name).mkdir(parents=True)
        (self._new / "log/wtmp").touch()
        (self._new / "tmp").chmod(0o1777)
        (self._new / "run").symlink_to("/run")
        for name in OLD:
            (self.var / name).parent.mkdir(parents=True, exist_ok=True)
            (self.var / name).write_text("old")
        (self.var / "run").symlink_to("/run")
        self.key = folder / "the key's blocks"
        self.key.hardlink_to(self.var / OLD[0])
        self.mark.touch()
        (folder / "busybox").write_text(STEP)
        (folder / "busybox").chmod(0o755)

    def start(self, cut: int = 0) -> int:
        """The script up to the machine's id; its exit status, negative for a power cut."""
        (self._folder / "count").write_text("")
        line = next(line for line in INIT.splitlines() if "|| reset_data ||" in line)
        function = INIT[INIT.index("reset_data() {") : INIT.index("keep_machine_id() {")]
        named = next(word for word in INIT.split() if word.startswith("reset="))
        script = f"say() {{ :; }}\nagain() {{ exit 1; }}\n{named}\n{function}\n{line}\n"
        script = script.replace("/bin/busybox", f"{self._folder}/busybox").replace("/root/", f"{self._folder}/root/")
        variables = {**os.environ, "COUNT": str(self._folder / "count"), "CUT": str(cut)}
        done = subprocess.run(["sh", "-c", script], env=variables, check=False, start_new_session=True)
        return done.returncode

    def is_new(self) -> bool:
        found = _listed(self.var)
        return [one for one in found if one[0] != "lost+found"] == _listed(self._new)


def _listed(folder: Path) -> list[tuple[str, int, str]]:
    """Name, type with mode, and content."""
    return sorted(
        (str(path.relative_to(folder)), path.lstat().st_mode, path.read_text() if path.is_file() else "")
        for path in folder.rglob("*")
    )


pytestmark = pytest.mark.skipif(not all(map(shutil.which, ("sh", "shred", "find"))), reason="needs a shell and shred")


def test_a_reset_board_has_the_data_of_a_new_card(tmp_path: Path) -> None:
    data = Data(tmp_path)
    assert data.start() == 0
    assert data.is_new()
    assert stat.S_IMODE((data.var / "tmp").stat().st_mode) == 0o1777
    assert set(data.key.read_bytes()) == {0}
    (data.var / "later").touch()
    assert data.start() == 0  # without a mark nothing is removed
    assert (data.var / "later").exists()


def test_after_a_power_cut_at_any_step_the_next_start_ends_it(tmp_path: Path) -> None:
    """As long as the mark is there the board does not run; without it the data are those of a new card."""
    cuts = 0
    for cut in range(1, 200):
        data = Data(tmp_path / str(cut))
        if data.start(cut) == 0:
            break
        cuts += 1
        assert data.mark.exists() or data.is_new()
        assert data.start() == 0
        assert data.is_new()
    assert cuts > len(OLD) + len(NEW)


def test_data_that_cannot_be_removed_are_not_run(tmp_path: Path) -> None:
    data = Data(tmp_path)
    (tmp_path / "busybox").write_text('#!/bin/sh\ncase "$1 $2" in "rm -rf") exit 1 ;; rm*) "$@" ;; esac\n')
    assert data.start() == 1
    assert data.mark.exists()


def test_the_data_are_mounted_before_and_get_an_id_afterwards() -> None:
    calls = [INIT.index(text) for text in ("\nmount_data ||", "|| reset_data ||", "\nkeep_machine_id ||")]
    assert calls == sorted(calls)
