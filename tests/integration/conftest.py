"""The rig: a broker that queues without limit, and everything else on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.integration.fleet_world import Fleet
from tests.integration.rig import Rig


@pytest.fixture
def rig(tmp_path: Path, mosquitto: Callable[..., Broker]) -> Iterator[Rig]:
    made = Rig(tmp_path, mosquitto(persistence=True, settings="max_queued_messages 0\nmax_inflight_messages 0"))
    yield made
    made.close()


@pytest.fixture
def fleet(rig: Rig) -> Iterator[Fleet]:
    made = Fleet(rig)
    try:
        yield made
    finally:
        made.close()
        for agent in made.agents.values():
            print(agent.name, agent.log())
