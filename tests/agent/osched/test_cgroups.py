"""Control groups of version 2, on a folder with the files that the kernel would show (a machine has one version)."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.osched.kernel.cgroups import Cgroups, cpu_path


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
    assert (tmp_path / "edgert-sched/q_1/cgroup.type").read_text() == "threaded"


def test_the_group_of_a_thread_in_both_versions() -> None:
    text = "4:cpu,cpuacct:/a\n2:memory:/b\n0::/system.slice/x.service\n"
    assert cpu_path(text, 1) == "/a"
    assert cpu_path(text, 2) == "/system.slice/x.service"
    assert cpu_path("2:memory:/b\n", 1) is None
