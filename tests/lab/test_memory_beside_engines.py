"""An engine that answers without end, or with as much as it can, costs an agent no more than its unit allows."""

from __future__ import annotations

import contextlib
import re
import select
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from tests.agent.rig import RealAgent
from tests.lab.cgroups import Group
from tests.waiting import DEADLINE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.root]

UNIT_MB: Final = int(re.findall(r"MemoryMax=(\d+)M", Path("systemd/edgert-agent.service").read_text())[0])
ROUNDS: Final = 3
JOB: Final = b'{"jid": "%032d", "state": "RUNNING"},'
ANSWERS: Final = (
    b'{"jobs": [' + b"{}," * (16 << 20 >> 2) + b"{}]}",
    b'{"jobs": [' + b"".join(JOB % number for number in range(200_000)) + b"{}]}",
    b"[" * (4 << 20),
    b"",
)
"""Bodies of answers in turn; the empty one stands for bytes without end."""
CHUNK: Final = b" " * (1 << 16)


class Engine(ThreadingHTTPServer):
    """A Flink that means harm."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.given: Counter[int] = Counter()
        """Number of the answer -> how often it was given."""


class Answer(BaseHTTPRequestHandler):
    """One answer to whatever is asked."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Engine)
        number = self.server.given.total() % len(ANSWERS)
        self.server.given[number] += 1
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):  # the agent has had enough
            self.wfile.write(ANSWERS[number])
            while not ANSWERS[number] and not select.select([self.connection], [], [], 0)[0]:
                self.wfile.write(CHUNK)

    def log_message(self, *told: object) -> None:
        """Says nothing."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    server = Engine()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_engine_that_means_harm_has_no_agent_killed(tmp_path: Path, engine: Engine) -> None:
    extra = f'[sched]\nperiod_s = 0.05\ndrivers = ["flink=http://127.0.0.1:{engine.server_port}"]\n'
    agent = RealAgent(tmp_path, "board-1", [], [bytes(32)], extra=extra)
    try:
        group = Group("agent", 0, UNIT_MB)
    except OSError as error:
        pytest.skip(f"this process may make no control groups: {error}")
    try:
        agent.start(group.command)
        wait_until(
            lambda: all(engine.given[number] >= ROUNDS for number in range(len(ANSWERS))), "all answers",
            progress=engine.given.total,
        )  # fmt: skip
        print(f"peak of the agent: {agent.peak_mb():.0f} MB of {UNIT_MB}; its group: {group.peak_mb():.0f} MB; "
              f"kills: {group.kills()}; answers: {dict(engine.given)}")  # fmt: skip
        assert group.kills() == 0
        assert agent.process is not None
        agent.process.terminate()
        assert agent.process.wait(DEADLINE_S) == 0
    finally:
        agent.kill()
        group.close()
