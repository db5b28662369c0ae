"""Logging: one line per event, in the form its reader wants."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from edgert.core import log


@pytest.fixture(autouse=True)
def _restored_root() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])


def lines(level: str = "info", env: dict[str, str] | None = None) -> list[str]:
    stream = io.StringIO()
    log.set_up(level, stream=stream, env=env)
    logger = logging.getLogger("edgert.test")
    logger.debug("detail")
    logger.info("started with %d workers", 2)
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logger.exception("failed")
    logging.getLogger("amqtt.broker").info("chatter")
    return stream.getvalue().splitlines()


def test_one_event_is_one_line_with_the_time_of_day() -> None:
    info, error = lines()
    assert info.endswith("INFO edgert.test: started with 2 workers")
    assert info[2] == info[5] == ":"
    assert "ERROR edgert.test: failed ⏎ Traceback" in error
    assert error.endswith("first ⏎ second")


def test_under_systemd_the_line_carries_its_priority_instead_of_the_time() -> None:
    info, error = lines(env={"JOURNAL_STREAM": "8:1"})
    assert info == "<6>INFO edgert.test: started with 2 workers"
    assert error.startswith("<3>ERROR")


def test_level_decides_and_libraries_stay_calm() -> None:
    assert len(lines("error")) == 1
    assert any("detail" in line for line in lines("debug"))
    assert not any("chatter" in line for line in lines("info"))
    assert any("chatter" in line for line in lines("debug"))
