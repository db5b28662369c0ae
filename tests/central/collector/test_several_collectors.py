"""Several collectors share the results of a fleet: one is killed, another stands still past its leases and goes on."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from edgert.central.tables.lease import claims
from edgert.central.tables.query import query
from edgert.core.results.results import PARTITIONS, partition_of
from tests.brokers import Broker
from tests.central.collector_rig import Outbox, Start, resend
from tests.central.results_examples import FLOW, Gateway, contribution
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
LEASE_S = 12.0
GATEWAYS = [f"g{i}" for i in range(8)]


class Fleet:
    """Gateways that ship all the time, from a thread of their own."""

    def __init__(self, port: int) -> None:
        self.outboxes = {name: Outbox(port, name) for name in GATEWAYS}
        self.shipped: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ship)

    def start(self) -> None:
        self._thread.start()

    def _ship(self) -> None:
        gateways = {name: Gateway(name) for name in GATEWAYS}
        for name, gateway in gateways.items():
            self.outboxes[name].keep(gateway.open())
        for turn in itertools.count():
            for name, gateway in gateways.items():
                outbox = self.outboxes[name]
                outbox.keep(gateway.rows(*[contribution(turn, f"{name}-{i}", 1.0) for i in range(3)]))
                self.shipped[name] += 3
                resend(outbox)
            if self._stop.wait(0.1):
                return

    def stop(self) -> None:
        """Ship no more, but send on until all is acknowledged."""
        self._stop.set()
        self._thread.join()
        wait_until(lambda: all(list(map(resend, self.outboxes.values()))), "all acknowledgements", 120)

    def acknowledged(self) -> dict[str, int]:
        """How far each gateway's results have landed, as it was told."""
        heard = {name: outbox.heard[-1].acks if outbox.heard else {} for name, outbox in self.outboxes.items()}
        return {name: max(acks.values(), default=0) for name, acks in heard.items()}

    def wait_for_each(self) -> None:
        """Until something more of each gateway has landed."""
        before = self.acknowledged()
        wait_until(lambda: all(n > before[name] for name, n in self.acknowledged().items()), "results of each", 120)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for outbox in self.outboxes.values():
            outbox.close()


@pytest.fixture
def fleet(mosquitto: Callable[..., Broker]) -> Iterator[Fleet]:
    made = Fleet(mosquitto().port)
    made.start()
    yield made
    made.close()


def holders(root: Path) -> Counter[str]:
    """How many partitions each living collector has, by its id."""
    now = time.time()
    held = [c for c in claims(str(root)) if c.name.startswith("partition") and c.expires > now]
    return Counter(c.holder.partition(":")[0] for c in held)


def share_of(status: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The last that a collector said of itself."""
    return next((s for s in reversed(status) if s["collector"] == name), {})


@pytest.mark.long
def test_one_is_killed_another_is_a_zombie_and_the_table_is_exact(fleet: Fleet, start: Start, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    port = fleet.outboxes["g0"].port
    assert len({partition_of(name) for name in GATEWAYS}) > 4
    names = ("one", "two", "three")
    collectors = {name: start(port, EDGERT_COLLECTOR_ID=name, EDGERT_COLLECTOR_LEASE_S=str(LEASE_S)) for name in names}
    wait_until(lambda: sorted(holders(root).values()) == [5, 5, 6], "a share for each", 120)

    collectors["one"].send_signal(signal.SIGKILL)
    collectors["one"].wait()
    wait_until(lambda: holders(root) == {"two": 8, "three": 8}, "its partitions at the others", 120)

    collectors["two"].send_signal(signal.SIGSTOP)
    wait_until(lambda: holders(root) == {"three": PARTITIONS}, "all partitions at the last", 120)
    before = fleet.acknowledged()
    wait_until(lambda: all(n > before[name] for name, n in fleet.acknowledged().items()), "results of every gateway")
    collectors["two"].send_signal(signal.SIGCONT)
    wait_until(lambda: holders(root) == {"two": 8, "three": 8}, "half of them back", 120)
    before = fleet.acknowledged()
    wait_until(lambda: all(n > before[name] for name, n in fleet.acknowledged().items()), "results of every gateway")

    fleet.stop()
    rows = query(DeltaTable(str(root / "landing" / FLOW)), ["gateway", "epoch", "stream", "sequence", "source"])
    counted = Counter((r["gateway"], r["sequence"], r["source"]) for r in rows)
    assert set(counted.values()) == {1}
    assert Counter(r["gateway"] for r in rows if r["source"]) == fleet.shipped
    said = fleet.outboxes["g0"].status
    wait_until(lambda: share_of(said, "two").get("lost_leases") == 8, "the zombie's own word")
    assert share_of(said, "three")["lost_leases"] == 0
    wait_until(lambda: len(share_of(said, "three")["partitions"]) == 8, "the last one's word of its half")

    collectors["two"].send_signal(signal.SIGTERM)
    assert collectors["two"].wait(60.0) == 0
    wait_until(lambda: holders(root) == {"three": PARTITIONS}, "what it gave back", LEASE_S)
