"""The door: real threads of the test's own processes are changed, and put back whatever happens in between."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.drivers.entities import Thread
from agent.osched.kernel import slices
from agent.osched.kernel.actions import Action, SetGroup, SetNice, SetSlice
from agent.osched.kernel.door import Door
from agent.osched.kernel.rights import Abilities, abilities
from tests.agent.osched.worlds import PROC, needs_nice, worker
from tests.waiting import wait_until

pytestmark = needs_nice
ABLE = abilities()
needs_slices = pytest.mark.skipif(ABLE.slice_ns is None, reason="needs a kernel that takes slices (6.12 and newer)")
needs_groups = pytest.mark.skipif(ABLE.cgroups is None, reason="needs a cgroup with the cpu controller to write to")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "state" / "osched.journal"


@pytest.fixture
def door(journal: Path) -> Iterator[Door]:
    made = Door(journal, ABLE)
    yield made
    made.close()


def test_nice_values_are_set_and_put_back(door: Door, journal: Path) -> None:
    with worker(threads=2) as process:
        threads = process.threads()
        outcome = door.apply([SetNice(thread, nice) for thread, nice in zip(threads, (3, 7, 11), strict=True)])
        assert (outcome.changed, outcome.errors) == (3, [])
        assert process.nices() == [3, 7, 11]
        assert journal.stat().st_mode & 0o777 == 0o600
        door.undo()
        assert process.nices() == [0, 0, 0]
        assert not journal.exists()


def test_what_holds_already_costs_no_call_and_no_write(door: Door, journal: Path) -> None:
    with worker() as process:
        actions = [SetNice(thread, 5) for thread in process.threads()]
        door.apply(actions)
        size = journal.stat().st_size
        assert door.apply(actions).changed == 0
        assert door.apply([SetNice(a.thread, 6) for a in actions]).changed == 1
        assert journal.stat().st_size == size, "only the value before the first change is noted"


def test_only_what_needs_no_disk_is_done_at_once(door: Door, journal: Path) -> None:
    with worker(threads=1) as process:
        first, second = process.threads()
        assert door.apply_at_once([SetNice(first, 5)]) is None, "the journal of a killed agent was not looked at yet"
        door.apply([SetNice(first, 5)])
        assert door.apply_at_once([SetNice(first, 6), SetNice(second, 6)]) is None, "the second is not in the journal"
        assert process.nices() == [5, 0], "nothing was done"
        outcome = door.apply_at_once([SetNice(first, 7)])
        assert outcome is not None
        assert (outcome.changed, process.nices()) == (1, [7, 0])
        assert door.apply_at_once([]) is not None
        assert process.nices() == [0, 0], "put back: no action asks for it any more"
        door.close()
        assert door.apply_at_once([SetNice(first, 8)]) is None


@needs_groups
def test_threads_are_not_moved_between_groups_at_once(door: Door) -> None:
    with worker() as process:
        (thread,) = process.threads()
        actions: list[Action] = [SetGroup("", 1.0, (thread,)), SetNice(thread, 5)]
        door.apply(actions)
        outcome = door.apply_at_once(actions)
        assert outcome is not None
        assert outcome.changed == 0
        assert door.apply_at_once([SetGroup("", 2.0, (thread,)), SetNice(thread, 5)]) is None
        assert door.apply_at_once([SetNice(thread, 5)]) is None, "it would leave the group"


def test_the_next_door_undoes_what_a_killed_one_left(journal: Path) -> None:
    with worker(threads=3) as process:
        os.setpriority(os.PRIO_PROCESS, process.threads()[1].tid, 2)
        killed = Door(journal, ABLE)
        killed.apply([SetNice(thread, 9) for thread in process.threads()])
        killed.apply([SetNice(thread, 12) for thread in process.threads()])
        # It ends here without a word.
        assert Door(journal, ABLE).undo_left_over() == 4
        assert process.nices() == [0, 2, 0, 0]
        assert Door(journal, ABLE).undo_left_over() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_a_journal_of_another_user_is_not_undone_and_nothing_is_changed(journal: Path) -> None:
    with worker() as process:
        Door(journal, ABLE).apply([SetNice(process.threads()[0], 9)])
        journal.write_text(journal.read_text().replace('"value":0', '"value":-19'))
        os.chown(journal, 65534, 65534)
        door = Door(journal, ABLE)
        with pytest.raises(PermissionError, match="expected a plain file of user 0"):
            door.undo_left_over()
        (error,) = door.apply([SetNice(process.threads()[0], 3)]).errors
        assert error.startswith("the journal cannot be read, so nothing was changed")
        assert process.nices() == [9]


def test_a_pipe_in_place_of_the_journal_is_an_error(journal: Path) -> None:
    journal.parent.mkdir()
    os.mkfifo(journal)
    with pytest.raises(PermissionError, match="expected a plain file"):
        Door(journal, ABLE).undo_left_over()


@needs_groups
def test_a_record_of_a_folder_that_no_agent_makes_removes_and_writes_nothing(journal: Path, tmp_path: Path) -> None:
    assert ABLE.cgroups is not None
    stranger, hers = ABLE.cgroups.parent / "stranger", tmp_path / "hers"
    (hers / "edgert-sched-1").mkdir(parents=True)
    for name in ("tasks", "cgroup.procs", "cgroup.threads"):
        (hers / name).write_text("precious")
    stranger.mkdir()
    try:
        with worker() as process:
            (thread,) = process.threads()
            killed = Door(journal, ABLE)
            killed.apply([SetGroup("", 1.0, (thread,)), SetNice(thread, 9)])
            own = str(ABLE.cgroups.root)
            made = [str(stranger), str(hers / "edgert-sched-1"), f"{own}/../stranger"]
            text = journal.read_text() + "".join(json.dumps({"made": path}) + "\n" for path in made)
            journal.write_text(text.replace(str(ABLE.cgroups.parent) + '"', str(hers) + '"'))
            Door(journal, ABLE).undo_left_over()
            assert process.nices() == [0]
            assert not ABLE.cgroups.root.exists()
        assert stranger.exists()
        assert (hers / "edgert-sched-1").exists()
        assert {(hers / name).read_text() for name in ("tasks", "cgroup.procs", "cgroup.threads")} == {"precious"}
    finally:
        stranger.rmdir()


def test_a_thread_that_inherited_a_changed_value_is_put_back_too(journal: Path) -> None:
    with worker() as process:
        killed = Door(journal, ABLE)
        killed.apply([SetNice(process.threads()[0], 9)])
        process.spawn()
        assert process.nices() == [9, 9], "inherited, and in no record"
        Door(journal, ABLE).undo_left_over()
        assert process.nices() == [0, 0]


def test_a_process_that_a_changed_thread_started_is_put_back_too(journal: Path) -> None:
    with worker() as process:
        before = process.fork()
        start = PROC.started(before)
        assert start is not None
        wait_until(
            lambda: PROC.now_ticks() > start, "the next tick: what started in that of the change counts as later"
        )
        killed = Door(journal, ABLE)
        killed.apply([SetNice(process.threads()[0], 9)])
        after = process.fork()
        os.setpriority(os.PRIO_PROCESS, before, 4)  # started before the change, so not by the agent
        assert os.getpriority(os.PRIO_PROCESS, after) == 9
        Door(journal, ABLE).undo_left_over()
        assert (os.getpriority(os.PRIO_PROCESS, before), os.getpriority(os.PRIO_PROCESS, after)) == (4, 0)


def test_a_change_before_the_start_is_over_undoes_the_journal_first(journal: Path) -> None:
    """A verb may come while the agent starts."""
    with worker() as process:
        Door(journal, ABLE).apply([SetNice(process.threads()[0], 9)])
        second = Door(journal, ABLE)
        second.apply([SetNice(process.threads()[0], 12)])
        assert second.undo_left_over() == 0
        assert process.nices() == [12]
        second.close()
        assert process.nices() == [0]


def test_half_a_line_of_a_full_disk_is_cut_off(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(threads=1) as process:
        first, second = process.threads()
        door, write = Door(journal, ABLE), os.write
        door.apply([SetNice(first, 9)])

        def full(file: int, data: bytes) -> int:
            if len(data) > 20:
                return write(file, data[:20])
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("agent.osched.kernel.journal.os.write", full)
            assert "nothing was changed" in door.apply([SetNice(first, 9), SetNice(second, 9)]).errors[0]
        assert process.nices() == [9, 0]
        door.apply([SetNice(first, 9), SetNice(second, 9)])
        assert Door(journal, ABLE).undo_left_over() == 2
        assert process.nices() == [0, 0]


def test_a_journal_that_somebody_removed_is_written_anew(journal: Path) -> None:
    with worker(threads=1) as process:
        first, second = process.threads()
        door = Door(journal, ABLE)
        door.apply([SetNice(first, 9)])
        journal.unlink()
        door.apply([SetNice(first, 9), SetNice(second, 9)])
        assert Door(journal, ABLE).undo_left_over() == 2
        assert process.nices() == [0, 0]


def test_an_inherited_value_is_not_taken_for_a_threads_own(door: Door) -> None:
    with worker() as process:
        door.apply([SetNice(process.threads()[0], 9)])
        process.spawn()
        door.apply([SetNice(thread, 4) for thread in process.threads()])
        door.undo()
        assert process.nices() == [0, 0]


def test_a_thread_that_no_action_names_any_more_is_put_back(door: Door) -> None:
    with worker(threads=1) as process:
        first, second = process.threads()
        door.apply([SetNice(first, 9), SetNice(second, 9)])
        door.apply([SetNice(first, 9)])
        assert process.nices() == [9, 0]


def test_a_reused_thread_id_is_left_alone(door: Door) -> None:
    with worker() as process:
        (thread,) = process.threads()
        before = thread._replace(start_ticks=thread.start_ticks - 1)
        outcome = door.apply([SetNice(before, 9), SetNice(Thread(2**22 - 3, 2**22 - 3, 1), 9)])
        assert (outcome.changed, outcome.gone) == (0, 2)
        assert process.nices() == [0]


def test_a_record_of_a_thread_whose_id_was_reused_is_not_undone(journal: Path) -> None:
    with worker() as process:
        (thread,) = process.threads()
        killed = Door(journal, ABLE)
        killed.apply([SetNice(thread, 9)])
        text = journal.read_text()
        journal.write_text(text.replace(str(thread.start_ticks), str(thread.start_ticks - 5)))
        Door(journal, ABLE).undo_left_over()
        assert process.nices() == [9], "it is another thread now, by its start"


def test_the_journal_of_another_boot_means_nothing(journal: Path) -> None:
    with worker() as process:
        Door(journal, ABLE).apply([SetNice(process.threads()[0], 9)])
        journal.write_text(journal.read_text().replace(PROC.boot_id(), "another"))
        door = Door(journal, ABLE)
        assert door.undo_left_over() == 0
        door.apply([SetNice(process.threads()[0], 8)])
        assert "another" not in journal.read_text()


def test_a_line_cut_short_by_a_crash_is_skipped(journal: Path) -> None:
    with worker(threads=1) as process:
        Door(journal, ABLE).apply([SetNice(process.threads()[0], 9)])
        with journal.open("a") as file:
            file.write('{"kind": "nice", "thread": [1')
        second = Door(journal, ABLE)
        assert second.undo_left_over() == 1
        assert process.nices() == [0, 0]


def test_without_a_journal_nothing_is_changed(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    with worker() as process:
        outcome = Door(tmp_path / "state" / "journal", ABLE).apply([SetNice(process.threads()[0], 9)])
        assert outcome.errors
        assert "nothing was changed" in outcome.errors[0]
        assert process.nices() == [0]


def test_without_the_right_nothing_is_tried_and_the_status_says_what_to_do(journal: Path) -> None:
    unable = Abilities(nice=False, slice_ns=None, cgroups=None)
    with worker() as process:
        outcome = Door(journal, unable).apply([SetNice(process.threads()[0], 9)])
        assert outcome.errors == ["nice cannot be set on this board"]
        assert process.nices() == [0]
    assert "CAP_SYS_NICE" in unable.lacks()[0]


def test_a_closed_door_changes_nothing_any_more(journal: Path) -> None:
    door = Door(journal, ABLE)
    door.close()
    with worker() as process:
        assert door.apply([SetNice(process.threads()[0], 9)]).changed == 0
        assert process.nices() == [0]


@needs_slices
def test_slices_are_set_and_put_back(door: Door) -> None:
    with worker() as process:
        (thread,) = process.threads()
        door.apply([SetNice(thread, 3), SetSlice(thread, 5_000_000)])
        assert slices.get(thread.tid) == 5_000_000
        assert process.nices() == [3], "a slice leaves the nice value as it is"
        door.undo()
        assert slices.get(thread.tid) == ABLE.slice_ns


@needs_groups
def test_threads_enter_groups_with_their_shares_and_come_back(door: Door, journal: Path) -> None:
    cgroups = ABLE.cgroups
    assert cgroups is not None
    with worker(threads=1) as process:
        before = [cgroups.group_of(thread) for thread in process.threads()]
        first, second = process.threads()
        assert door.apply([SetGroup("etl", 2.0, (first,)), SetGroup("stats", 0.5, (second,))]).errors == []
        assert cgroups.group_of(first) == cgroups.folder("etl")
        shares = "cpu.shares" if cgroups.version == 1 else "cpu.weight"
        assert (cgroups.folder("etl") / shares).read_text().strip() == ("2048" if cgroups.version == 1 else "200")
        process.spawn()  # its thread is in the group of the main thread, by inheritance
        Door(journal, ABLE).undo_left_over()
        assert [cgroups.group_of(thread) for thread in process.threads()] == [*before, before[0]]
        assert not cgroups.root.exists()


def test_records_of_ended_threads_leave_the_journal_and_what_was_inherited_is_still_undone(journal: Path) -> None:
    door = Door(journal, ABLE)
    door.spare_records = 0
    with worker() as lasting:
        door.apply([SetNice(lasting.threads()[0], 5)])
        for _ in range(5):
            with worker() as ended:
                door.apply([SetNice(thread, 9) for thread in (*lasting.threads(), *ended.threads())])
        lasting.spawn()
        door.apply([SetNice(lasting.threads()[0], 6)])
        assert len(journal.read_text().splitlines()) == 2, "the boot, and the one process that lives"
        assert Door(journal, ABLE).undo_left_over() == 1
        assert lasting.nices() == [0, 0]
