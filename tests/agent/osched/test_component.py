"""The part as a whole: one agent per data folder."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agent.osched.component import OsScheduling
from edgert.core.errors import EdgertError
from edgert.core.settings.agent import Sched
from tests.waiting import until


def test_a_second_agent_is_kept_from_the_journal_until_the_first_has_ended(tmp_path: Path) -> None:
    first = OsScheduling(Sched(), "", tmp_path, drivers=[])
    with pytest.raises(EdgertError, match="expected one agent per data folder"):
        OsScheduling(Sched(), "", tmp_path, drivers=[])

    async def end() -> None:
        running = asyncio.ensure_future(first.run())
        await until(lambda: first.scheduler.periods, "a period")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(end())
    OsScheduling(Sched(), "", tmp_path, drivers=[])


NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


@needs_root
def test_a_data_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """Its owner could write a journal, by which the agent would change other processes and remove folders."""
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, NOBODY, NOBODY)
    with pytest.raises(EdgertError, match=r"expected a folder that only user 0 can change, got .*/data of user 65534"):
        OsScheduling(Sched(), "", data, drivers=[])


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_data_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(EdgertError, match=rf"got .*/data of user \d+ with mode {mode:o}"):
        OsScheduling(Sched(), "", data, drivers=[])


def test_a_data_folder_in_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Another user could put a folder in its place."""
    (tmp_path / "open" / "data").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(EdgertError, match=r"got .*/open of user \d+ with mode 777"):
        OsScheduling(Sched(), "", tmp_path / "open" / "data", drivers=[])


def test_a_link_in_place_of_the_lock_is_refused_and_its_target_stays(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "osched.lock").symlink_to(target)
    with pytest.raises(EdgertError, match=r"osched\.lock: Too many levels of symbolic links"):
        OsScheduling(Sched(), "", tmp_path, drivers=[])
    assert target.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(EdgertError, match=r"osched\.lock: Permission denied"):
        OsScheduling(Sched(), "", tmp_path / "data", drivers=[])
