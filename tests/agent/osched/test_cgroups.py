"""Control groups of version 2, on a folder with the files that the kernel would show (a machine has one version)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.drivers.entities import Thread
from agent.drivers.procfs import ProcFs
from agent.osched.kernel.actions import SetGroup
from agent.osched.kernel.cgroups import Cgroups, cpu_path, find
from agent.osched.kernel.door import Door
from agent.osched.kernel.journal import ChangeKind
from agent.osched.kernel.rights import Abilities
from agent.osched.kernel.thread_values import ThreadValues
from tests.agent.osched.worlds import worker


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


def version_2(folder: Path, *names: str) -> Cgroups:
    """The files of the root group and of groups in it."""
    groups = Cgroups(2, folder, folder, ProcFs(folder / "proc"))
    for path in (groups.root, *map(groups.folder, names)):
        path.mkdir()
        (path / "cgroup.type").write_text("threaded\n")
        (path.parent / "cgroup.subtree_control").write_text("cpu\n")
    return groups


def test_version_2_moves_a_thread_from_a_group_to_the_root_group(tmp_path: Path) -> None:
    groups = version_2(tmp_path, "q")
    (told := tmp_path / "proc/7/task/8").mkdir(parents=True)
    (told / "cgroup").write_text("0::/edgert-sched/q\n")
    groups.move(Thread(7, 8, 9), groups.root)
    assert (groups.root / "cgroup.threads").read_text() == "8"
    assert not (groups.root / "cgroup.procs").exists(), "its process is in the root group"


class Values(ThreadValues):
    """Notes what would be done to threads."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self.put_to: list[tuple[int, str]] = []

    def get(self, kind: ChangeKind, thread: Thread) -> str:
        return f"{self.mount}/before"

    def put(self, kind: ChangeKind, thread: Thread, value: int | str) -> None:
        self.put_to.append((thread.tid, Path(str(value)).name))

    put_back = put


def test_version_2_leaves_the_others_of_a_process_in_their_groups_when_one_of_its_threads_is_released(
    tmp_path: Path,
) -> None:
    """A thread is put back with its whole process there: the others would lose their groups, unseen."""
    groups, values = version_2(tmp_path, "a", "b"), Values(tmp_path)
    door = Door(tmp_path / "journal", Abilities(False, None, groups), values=values)
    with worker(threads=1) as process:
        one, two = process.threads()
        a, b = SetGroup("a", 1.0, (one,)), SetGroup("b", 1.0, (two,))
        assert door.apply([a, b]).errors == []
        assert values.put_to == [(one.tid, "a"), (two.tid, "b")]
        door.apply([b])
        assert values.put_to[2:] == [(one.tid, "edgert-sched")]
        door.apply([])
        assert values.put_to[3:] == [(two.tid, "before")], "and with it the process"


def test_the_group_of_a_thread_in_both_versions() -> None:
    text = "4:cpu,cpuacct:/a\n2:memory:/b\n0::/system.slice/x.service\n"
    assert cpu_path(text, 1) == "/a"
    assert cpu_path(text, 2) == "/system.slice/x.service"
    assert cpu_path("2:memory:/b\n", 1) is None
