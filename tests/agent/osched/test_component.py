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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(EdgertError, match=r"osched\.lock: Permission denied"):
        OsScheduling(Sched(), "", tmp_path / "data", drivers=[])
