"""Publication of the table `models`: each model's current version, retained, where its gateways look for it.

The table is changed first and the broker told after it, both under a lease per model, so that two who publish never
leave the older one at the broker. A broker that was away is told later: at the next change, or by a service that runs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from edgert.central.tables.lease import LeaseLost, TableLease, own_name
from edgert.central.tables.models import REPLACED, ROLLED_BACK, ModelRegistry, ModelVersion, current
from edgert.core.errors import EdgertError
from edgert.core.settings.connection import Connection
from edgert.core.text.model_topic import model_topic
from edgert.mqtt.clients.control_plane import ControlConnection

PATIENCE_S: Final = 90.0
"""How long the lease of a model is waited for: longer than a dead holder keeps it."""
CONNECT_S: Final = 10.0
_LOOK_S: Final = 0.05


class NotPublished(EdgertError):
    """The table is changed, and the broker does not know of it yet."""


@contextmanager
def changing(root: str, name: str, patience_s: float = PATIENCE_S) -> Iterator[TableLease]:
    """Only one at a time changes a model and publishes it. Raises `LeaseLost` if another takes too long."""
    lease = TableLease(root, f"model {name}", own_name())
    end = time.monotonic() + patience_s
    while True:
        try:
            lease.acquire()
            break
        except LeaseLost:
            if time.monotonic() >= end:
                raise
            time.sleep(1.0)
    try:
        yield lease
    finally:
        lease.release()


class Publication:
    """A connection to the broker, by which models and alerts are published. `on_connected` runs on a thread of the
    connection."""

    def __init__(self, settings: Connection, fleet: str, on_connected: Callable[[], None] = lambda: None) -> None:
        self._fleet = fleet
        client_id = f"edgert-central-{secrets.token_hex(4)}"
        self._connection = ControlConnection(settings, client_id, on_connected=on_connected)

    def start(self) -> None:
        """Begins to connect and returns at once."""
        self._connection.start()

    def wait(self, timeout_s: float = CONNECT_S) -> None:
        """Returns when there is a connection. Raises `EdgertError` saying why there is none."""
        address = self._connection.address
        end = time.monotonic() + timeout_s
        while not self._connection.connected:
            if self._connection.error or time.monotonic() >= end:
                why = self._connection.error or f"no answer within {timeout_s:g} s"
                raise EdgertError(f"{why if address in why else f'broker {address}: {why}'}; no model was changed")
            time.sleep(_LOOK_S)

    def close(self) -> None:
        self._connection.stop()

    @property
    def connected(self) -> bool:
        return self._connection.connected

    def publish(self, registry: ModelRegistry, name: str, lease: TableLease) -> list[str]:
        """Tells the broker what the table says of a model; returns the topics. `lease`: that of `changing`.

        What earlier versions had published for gateways that the current one is not for is taken back. A topic that
        the broker refuses keeps none of the others from being told. Raises `NotPublished`, `LeaseLost`, `TableError`.
        """
        versions = registry.versions(name)
        now = current(versions)
        if now is None:
            return []
        topics = self._topics(now)
        past = {t for v in versions if v.state in (REPLACED, ROLLED_BACK) for t in self._topics(v)}
        messages = dict.fromkeys(sorted(past), b"") | dict.fromkeys(topics, now.document.encode())
        untold = []
        for topic, payload in messages.items():
            lease.hold()
            why = self._connection.deliver(topic, payload, retain=True)
            untold += [f"{topic}: {why}"] if why else []
            if why and not self.connected:
                break
        if untold:
            more = f" and {len(untold) - 1} more" if len(untold) > 1 else ""
            raise NotPublished(
                f"model {name}: the table `models` has its new state, but broker {self._connection.address} has not "
                f"({untold[0]}{more}); `edgert central rollback {name} --to VERSION` publishes a version (again)"
            )
        return topics

    def tell_alert(self, rule: str, payload: bytes) -> str:
        """Sends an alert, not retained; empty if the broker has it, else why not."""
        return self._connection.deliver(f"edgert/v1/{self._fleet}/@alerts/{rule}", payload)

    def _topics(self, version: ModelVersion) -> list[str]:
        gateways: Sequence[str] = version.gateways.split(",")  # of an empty text: [""], which is the fleet
        return [model_topic(self._fleet, version.name, gateway) for gateway in gateways]
