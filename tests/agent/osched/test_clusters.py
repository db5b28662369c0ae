"""big.LITTLE: a made-up sysfs, the choice of units for the fast cores, and the affinity of real threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.drivers.entities import EngineReport, Operator, Query, Thread
from agent.osched.kernel import cpus
from agent.osched.kernel.actions import Action, SetCores, SetNice
from agent.osched.kernel.clusters import Clusters, clusters_of, cores, mask
from agent.osched.kernel.door import Door
from agent.osched.kernel.rights import abilities
from agent.osched.policy.policies import POLICIES
from agent.osched.schedule import Mechanism, decide
from agent.osched.translate import to_cores
from tests.agent.osched.worlds import needs_nice, worker

FEW = len(os.sched_getaffinity(0)) < 2
needs_two_cores = pytest.mark.skipif(FEW, reason="needs two cores that this process may use")
HERE = sorted(os.sched_getaffinity(0))
CLUSTERS = Clusters(mask(HERE[-1:]), mask(HERE[:-1]))
"""As if the last core were a fast one."""
ABLE = replace(abilities(), clusters=CLUSTERS)


def sysfs(folder: Path, name: str, values: Sequence[int | str]) -> Path:
    """/sys/devices/system/cpu with a file per core, and what else stands there."""
    for core, value in enumerate(values):
        file = folder / f"cpu{core}" / name
        file.parent.mkdir(parents=True)
        file.write_text(f"{value}\n")
    (folder / "cpuidle").mkdir()
    (folder / "cpufreq").mkdir()
    return folder


def test_the_fast_cores_of_an_odroid_xu4(tmp_path: Path) -> None:
    found = cpus.find(sysfs(tmp_path, "cpu_capacity", [539] * 4 + [1024] * 4))
    assert found == Clusters(big=0b1111_0000, little=0b0000_1111)


def test_a_kernel_without_capacities_tells_frequencies(tmp_path: Path) -> None:
    folder = sysfs(tmp_path, "cpufreq/cpuinfo_max_freq", [1_400_000] * 4 + [2_000_000] * 4)
    assert cpus.find(folder) == Clusters(0b1111_0000, 0b0000_1111)


@pytest.mark.parametrize("values", [[1024] * 4, [], ["", 1024], [1024, 1000]])
def test_cores_that_are_alike_or_untold_make_no_clusters(tmp_path: Path, values: list[int | str]) -> None:
    assert cpus.find(sysfs(tmp_path, "cpu_capacity", values)) is None


def test_of_three_clusters_only_the_fastest_is_fast() -> None:
    assert clusters_of({0: 300, 1: 300, 2: 800, 3: 1024}) == Clusters(0b1000, 0b0111)


def test_it_is_on_by_default_on_an_odroid_xu4_only(tmp_path: Path) -> None:
    model = tmp_path / "model"
    assert not cpus.on_by_default(model)
    for text, on in (("Hardkernel Odroid XU4\0", True), ("Raspberry Pi 4 Model B Rev 1.4\0", False)):
        model.write_text(text)
        assert cpus.on_by_default(model) == on


A, B, C, D = ((Thread(n, n, 1), Thread(n, n + 1, 1)) for n in (10, 20, 30, 40))


def test_as_many_units_as_there_are_fast_cores_get_them_the_most_urgent_first() -> None:
    two, four = 0b11 << 4, 0b1111 << 4
    given: dict[tuple[Thread, ...], float] = {A: 1.0, B: 9.0, C: 5.0, D: 0.0}
    assert to_cores(given, two) == [SetCores(t, two) for t in (*B, *C)]
    assert to_cores(given, four) == [SetCores(t, four) for t in (*B, *C, *A)], "the least urgent runs anywhere"
    assert to_cores(dict.fromkeys(given, 3.0), two) == []
    assert to_cores({}, two) == []


def test_a_slot_takes_one_fast_core_whatever_its_threads_and_operators() -> None:
    operators = {
        "f/a": Operator("f/a", "f", threads=A), "f/b": Operator("f/b", "f", threads=A),
        "f/c": Operator("f/c", "f", threads=B), "f/d": Operator("f/d", "f", threads=C),
    }  # fmt: skip
    queues = {"f/a": 9.0, "f/b": 8.0, "f/c": 7.0, "f/d": 1.0}
    report = EngineReport("edgert", operators, {"f": Query("f")}, {"queue_size": queues})
    schedule = decide([report], POLICIES["qs"], Mechanism(fast=Clusters(0b1100, 0b0011)), lambda: 0.5)
    assert [a for a in schedule.actions if isinstance(a, SetCores)] == [SetCores(t, 0b1100) for t in (*A, *B)]
    without = decide([report], POLICIES["qs"], Mechanism(), lambda: 0.5)
    assert not [a for a in without.actions if isinstance(a, SetCores)]


@needs_nice
@needs_two_cores
def test_real_threads_run_on_the_fast_cores_only_and_are_put_back(tmp_path: Path) -> None:
    with worker(threads=2) as process:
        first, second, narrow = process.threads()
        os.sched_setaffinity(narrow.tid, cores(CLUSTERS.little))
        door = Door(tmp_path / "journal", ABLE)
        actions: list[Action] = [SetCores(t, CLUSTERS.big) for t in (first, narrow)]
        outcome = door.apply([*actions, SetNice(second, 5)])
        assert outcome.errors == []
        assert os.sched_getaffinity(first.tid) == cores(CLUSTERS.big)
        assert os.sched_getaffinity(second.tid) == set(HERE)
        assert os.sched_getaffinity(narrow.tid) == cores(CLUSTERS.little), "its owner keeps it off the fast ones"
        done = door.apply_at_once([SetCores(second, CLUSTERS.big), SetNice(second, 5)])
        assert done is None, "the second's cores are not in the journal yet"
        assert door.apply_at_once([SetNice(second, 5)]) is not None
        assert os.sched_getaffinity(first.tid) == set(HERE), "no action asks for it any more"
        door.apply(actions)
        door.close()
        assert [os.sched_getaffinity(t.tid) for t in (first, narrow)] == [set(HERE), cores(CLUSTERS.little)]


@needs_nice
@needs_two_cores
def test_the_next_start_undoes_what_a_killed_agent_left_heirs_too(tmp_path: Path) -> None:
    with worker() as process:
        (first,) = process.threads()
        killed = Door(tmp_path / "journal", ABLE)
        killed.apply([SetCores(first, CLUSTERS.big)])
        process.spawn()
        process.spawn()
        child = process.fork()
        _, heir, own = process.threads()
        assert os.sched_getaffinity(heir.tid) == os.sched_getaffinity(child) == cores(CLUSTERS.big), "inherited"
        os.sched_setaffinity(own.tid, cores(CLUSTERS.little))
        # The agent ends here without a word.
        assert Door(tmp_path / "journal", ABLE).undo_left_over() == 1
        assert [os.sched_getaffinity(tid) for tid in (first.tid, heir.tid, child)] == [set(HERE)] * 3
        assert os.sched_getaffinity(own.tid) == cores(CLUSTERS.little), "chosen by itself"
        assert not (tmp_path / "journal").exists()


def test_a_board_without_clusters_says_that_cores_cannot_be_chosen(tmp_path: Path) -> None:
    door = Door(tmp_path / "journal", replace(ABLE, clusters=None))
    (error,) = door.apply([SetCores(Thread(1, 1, 1), 1)]).errors
    assert error == "cores cannot be set on this board"
