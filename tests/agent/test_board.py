"""What a board allows is read from the kernel's own files, and what is missing is said."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from agent import board as module
from agent.__main__ import as_text, main
from agent.board import Board, Cgroup, Interface, Memory, Priority, Processor, find_cgroup, has_capability, missing
from agent.osched.kernel.rights import can_raise_priority

GOOD = Board(
    Processor(cores=4, usable=3, current_mhz=600.0, maximum_mhz=1400.0),
    Memory(total_bytes=2**30, available_bytes=2**29),
    Priority(cap_sys_nice=True, can_raise=True),
    Cgroup(2, "/sys/fs/cgroup/system.slice/edgert-agent.service", writable=True, has_cpu=True),
    (Interface("eth0", ("192.0.2.7",)),),
)


def test_nothing_is_missing_on_a_good_board() -> None:
    assert missing(GOOD) == []
    assert "all that the agent will need is there" in as_text(GOOD)


@pytest.mark.parametrize(
    ("board", "lack"),
    [
        (replace(GOOD, priority=Priority(cap_sys_nice=False, can_raise=False)), "CAP_SYS_NICE"),
        (replace(GOOD, priority=Priority(cap_sys_nice=True, can_raise=False)), "CAP_SYS_NICE"),
        (replace(GOOD, cgroup=Cgroup(0, "", writable=False, has_cpu=False)), "mount cgroup2"),
        (replace(GOOD, cgroup=Cgroup(2, "/x", writable=False, has_cpu=True)), "may write to"),
        (replace(GOOD, cgroup=Cgroup(2, "/x", writable=True, has_cpu=False)), "cpu controller"),
        (replace(GOOD, interfaces=()), "network address"),
    ],
)
def test_each_lack_is_named_once_with_its_remedy(board: Board, lack: str) -> None:
    (text,) = missing(board)
    assert lack in text
    assert ": " in text
    assert f"missing     {text}" in as_text(board)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [("000001ffffffffff", True), ("0000000000800000", True), ("00000000a80425fb", False), ("0000000000000000", False)],
)
def test_capability_is_a_bit_of_the_effective_set(mask: str, expected: bool) -> None:
    status = f"Name:\tpython3\nCapPrm:\t000001ffffffffff\nCapEff:\t{mask}\nCapBnd:\t000001ffffffffff\n"
    assert has_capability(status, module.CAP_SYS_NICE) == expected


def test_delegated_group_of_version_2_is_found(tmp_path: Path) -> None:
    group = tmp_path / "system.slice/edgert-agent.service"
    group.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (group / "cgroup.controllers").write_text("cpu pids\n")
    (group / "cgroup.subtree_control").write_text("")
    found = find_cgroup("0::/system.slice/edgert-agent.service\n", tmp_path, lambda folder: True)
    assert found == Cgroup(2, str(group), writable=True, has_cpu=True)


def test_group_whose_subtree_is_not_ours_is_not_delegated(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    found = find_cgroup("0::/\n", tmp_path, lambda folder: folder.name != "cgroup.subtree_control")
    assert found == Cgroup(2, str(tmp_path), writable=False, has_cpu=False)


def test_in_a_container_the_groups_root_stands_for_the_path_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    assert find_cgroup("0::/docker/abc\n", tmp_path, lambda folder: True).path == str(tmp_path)


def test_version_1_is_found_by_its_controller(tmp_path: Path) -> None:
    (tmp_path / "cpu,cpuacct/user").mkdir(parents=True)
    membership = "5:memory:/user\n4:cpuset:/\n3:cpu,cpuacct:/user\n1:name=systemd:/user\n0::/user\n"
    found = find_cgroup(membership, tmp_path, lambda folder: True)
    assert found == Cgroup(1, str(tmp_path / "cpu,cpuacct/user"), writable=True, has_cpu=True)


@pytest.mark.parametrize("membership", ["", "garbage\n", "0::/\n"])
def test_no_hierarchy_is_version_0(membership: str, tmp_path: Path) -> None:
    assert find_cgroup(membership, tmp_path).version == 0


def test_trying_to_raise_priority_leaves_it_as_it_was() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    can_raise_priority()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_both_ways_to_find_interfaces_agree() -> None:
    pytest.importorskip("pyroute2", reason="pyroute2 is not installed (extra agent)")
    by_netlink, by_psutil = module.by_netlink(), module.by_psutil()
    assert set(by_netlink) <= set(by_psutil)
    for name, addresses in by_netlink.items():
        assert set(addresses) <= set(by_psutil[name])


def test_interfaces_without_pyroute2_leave_loopback_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> dict[str, list[str]]:
        raise ImportError("pyroute2")

    found = {"lo": ["127.0.0.1", "::1"], "wlan0": ["fe80::1", "2001:db8::1", "192.0.2.1"], "eth0": ["169.254.0.1"]}
    monkeypatch.setattr(module, "by_netlink", absent)
    monkeypatch.setattr(module, "by_psutil", lambda: found)
    assert list(module.interfaces()) == [Interface("wlan0", ("192.0.2.1", "2001:db8::1"))]


@pytest.mark.parametrize(("board", "status"), [(GOOD, 0), (replace(GOOD, interfaces=()), 1)])
def test_status_tells_whether_something_is_missing(
    board: Board, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agent.board.look", lambda: board)
    assert main(["check", "--json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert told["missing"] == missing(board)
    assert told["processor"]["cores"] == 4
    assert main(["check"]) == status
    assert "3 of 4 usable, 600 MHz of 1400" in capsys.readouterr().out


def test_this_machine_can_be_looked_at() -> None:
    found = module.look()
    assert 1 <= found.processor.usable <= found.processor.cores
    assert 0 < found.memory.available_bytes <= found.memory.total_bytes
