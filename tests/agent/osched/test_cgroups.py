"""Control groups of version 2, on a folder with the files that the kernel would show (a machine has one version)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.osched.kernel.cgroups import Cgroups, cpu_path, find


@pytest.mark.parametrize(("kind", "becomes"), [("domain", "domain"), ("domain invalid", "threaded")])
def test_version_2_hands_the_cpu_controller_on_and_makes_groups_threaded(
    tmp_path: Path, kind: str, becomes: str
) -> None:
    groups = Cgroups(2, tmp_path, tmp_path)
    for folder, of in ((groups.root, kind), (groups.folder("q/1"), "domain")):
        folder.mkdir()
        (folder / "cgroup.type").write_text(f"{of}\n")
        (folder.parent / "cgroup.subtree_control").write_text("memory pids\n")
        groups.make(folder)
        assert (folder.parent / "cgroup.subtree_control").read_text() == "+cpu"
    assert (groups.root / "cgroup.type").read_text().strip() == becomes
    assert (groups.folder("q/1") / "cgroup.type").read_text() == "threaded"


LONG = "x" * 300
NAMES = ("a/b", "a_b", "a b", "...", "..", "tasks", "cpu.shares", "cgroup.procs", "é", "\udce9", LONG, LONG + "y")


def test_names_of_queries_give_folders_of_their_own_within_the_root_group(tmp_path: Path) -> None:
    groups = Cgroups(1, tmp_path, tmp_path)
    folders = [groups.folder(name) for name in NAMES]
    assert len(set(folders)) == len(NAMES), "no two share a folder"
    for folder in folders:
        assert folder.parent == groups.root
        folder.mkdir(parents=True)
        assert "." not in folder.name, "files of the kernel's have a dot, but for `tasks`"
        assert folder.name != "tasks"


def test_two_agents_in_one_group_have_root_groups_of_their_own() -> None:
    if (ours := find()) is None:
        pytest.skip("needs a cgroup with the cpu controller to write to")
    code = "from agent.osched.kernel.cgroups import find; print(find().root)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other
    assert Path(other).parent == ours.root.parent
    assert Path(other) != ours.root


def test_the_group_of_a_thread_in_both_versions() -> None:
    text = "4:cpu,cpuacct:/a\n2:memory:/b\n0::/system.slice/x.service\n"
    assert cpu_path(text, 1) == "/a"
    assert cpu_path(text, 2) == "/system.slice/x.service"
    assert cpu_path("2:memory:/b\n", 1) is None
