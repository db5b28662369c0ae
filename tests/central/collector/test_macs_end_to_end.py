"""MACs with real programs and a broker that has no rules: who forges results or acknowledgements reaches nothing."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
import pytest

from edgert.core.results.macs import gateway_key, split_untrusted, with_macs
from edgert.core.results.results import (
    Acknowledgement,
    EpochHello,
    acks_topic,
    pack_acknowledgement,
    pack_result,
    results_filter,
    results_topic,
    unpack_result_untrusted,
)
from edgert.core.text.key_lines import key_line
from edgert.core.toml import to_toml
from tests.brokers import Broker
from tests.central.results_examples import FLOW, contribution
from tests.central.results_examples import Gateway as Numbers
from tests.integration.rig import FLEET, Gateway, Process, Rig
from tests.integration.worlds import AIR
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

CENTRAL: Final = bytes(range(32))
G2: Final = gateway_key(CENTRAL, FLEET, "g2")
"""The key that a thief has: that of a board that was stolen."""
FIRST_S: Final = 1_700_000_040
"""The first minute that is measured, in seconds since 1970."""


class Fleet:
    """A broker without rules, and the files of keys."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.rig = Rig(folder, broker)
        self.central = self._file("central.key", CENTRAL)
        self._flow = folder / "air.toml"
        self._flow.write_text(to_toml(AIR))

    def _file(self, name: str, key: bytes) -> str:
        path = self.rig.folder / name
        path.write_text(f"{key_line(key)}\n")
        path.chmod(0o600)
        return str(path)

    def gateway(self, name: str, key: bytes | None) -> Gateway:
        central: dict[str, Any] = {"mac_key_file": self._file(f"{name}.key", key)} if key else {}
        return self.rig.gateway(name, central=central, flows={"files": [str(self._flow)]})

    def collect(self, **env: str) -> Process:
        collector = self.rig.collector(env={"EDGERT_COLLECTOR_MAC_KEY_FILE": self.central, **env})
        collector.start()
        return collector

    def measure(self, minutes: range) -> None:
        self.rig.publish([("s/a", b'{"time": %d, "v": 1.5}' % (FIRST_S + 60 * n)) for n in minutes])


@pytest.fixture
def fleet(mosquitto: Callable[..., Broker], tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, mosquitto())
    yield made
    made.rig.close()


class Client:
    """A client of the broker that hears one topic, from when it is made."""

    def __init__(self, rig: Rig, topic: str) -> None:
        self._client = rig.client()
        self._client.on_message = self.on_message
        armed = threading.Event()
        self._client.on_subscribe = lambda *_: armed.set()
        self._client.subscribe(topic, 1)
        assert armed.wait(60.0)

    def on_message(self, client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Status(Client):
    """The newest status of a collector."""

    def __init__(self, rig: Rig) -> None:
        self.newest: dict[str, Any] = {}
        super().__init__(rig, f"edgert/v1/{FLEET}/@collector/+/status")

    def on_message(self, client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self.newest = json.loads(message.payload)


class Forger(Client):
    """Answers hellos and acknowledges all results, as a collector would, without the central key. It sends each
    acknowledgement bare, with a stolen board's key, and as the result's own bytes."""

    def __init__(self, rig: Rig) -> None:
        self.forged: Counter[str] = Counter()
        """Acknowledgements of results, by gateway."""
        super().__init__(rig, results_filter(FLEET))

    def on_message(self, client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        result: Any = unpack_result_untrusted(split_untrusted(bytes(message.payload))[1])
        if isinstance(result, EpochHello):
            told: dict[str, Any] = {"answers": (result.flow,), "acks": {}, "tokens": {result.flow: result.token}}
        else:
            told = {"acks": {(result.flow, result.epoch, result.stream): result.sequence}}
            self.forged[result.gateway] += 1
        payload = pack_acknowledgement(Acknowledgement(gateway=result.gateway, collector="forged", **told))
        topic = acks_topic(FLEET, result.gateway)
        for forged in (payload, with_macs(payload, topic, [G2]), bytes(message.payload)):
            client.publish(topic, forged, qos=1)


def test_a_forged_acknowledgement_empties_no_outbox_and_the_collectors_own_does(fleet: Fleet) -> None:
    """`bare` has no key and shows what the forgery does."""
    collector = fleet.collect()
    signed, bare = fleet.gateway("g1", gateway_key(CENTRAL, FLEET, "g1")), fleet.gateway("g3", None)
    signed.start_ready()
    fleet.measure(range(10))
    signed.wait(lambda s: s["ingest"]["messages"] == 10 and not s["ingest"]["unacknowledged"], "all minutes")
    before = signed.wait_anew(
        lambda s: s["central"]["acknowledged"] >= 2 and not s["central"]["outbox_batches"], "landing"
    )
    collector.kill()
    forger = Forger(fleet.rig)
    bare.start_ready()
    fleet.measure(range(10, 20))
    bare.wait(lambda s: s["central"]["acknowledged"] >= 2 and not s["central"]["outbox_batches"], "what forgery does")
    wait_until(lambda: forger.forged["g1"], "results of g1 that are forged an acknowledgement")
    heard = signed.wait(lambda s: s["central"]["not_authentic_acks"] >= 3, "forged acknowledgements")
    assert heard["central"]["acknowledged"] == before["central"]["acknowledged"]
    assert heard["central"]["outbox_batches"] >= 1
    assert "expected a MAC by this gateway's key" in heard["central"]["error"]
    signed.kill()  # its next hello is answered by both
    fleet.collect()
    signed.start_ready()
    fleet.rig.drained(signed)
    forger.close()
    assert {row["gateway"] for row in fleet.rig.landed("air")} == {"g1"}, "g3 has no key, so nothing of it lands"
    assert fleet.rig.counts("air") == {(FIRST_S + 60.0 * n, "a"): 1 for n in range(18)}, "the last two are open"


def test_forged_results_land_nothing_and_are_told_with_the_name_they_claim(fleet: Fleet) -> None:
    fleet.collect(EDGERT_CENTRAL_PROTOCOL="3.1.1")
    status = Status(fleet.rig)
    wait_until(lambda: status.newest.get("online"), "the collector")
    topic, forged, honest = results_topic(FLEET, "g1", FLOW), Numbers("g1"), Numbers("g2", flow="water")
    batches = [pack_result(forged.open()), pack_result(forged.rows(contribution(0, "a", 1.0)))]
    own = results_topic(FLEET, "g2", "water")
    good = [pack_result(honest.open()), pack_result(honest.rows(contribution(0, "a", 1.0)))]
    fleet.rig.publish([
        *((topic, payload) for payload in batches),
        *((topic, with_macs(payload, topic, [G2])) for payload in batches),
        *((topic, with_macs(payload, own, [G2])) for payload in batches),
        *((own, with_macs(payload, own, [G2])) for payload in good),
    ])  # fmt: skip
    wait_until(lambda: status.newest["rows"] >= 1, "the honest row")
    wait_until(lambda: status.newest["not_authentic"] == 6, "the count of what was refused")
    assert status.newest["unsigned"] == 2
    assert topic in status.newest["newest_not_authentic"]
    assert (status.newest["rows"], status.newest["malformed"]) == (1, 0)
    assert not (fleet.rig.tables / "landing" / FLOW).exists()
    log = (fleet.rig.folder / "collector.log").read_text()
    assert "gateway g1: a result is refused: expected a MAC by the gateway's key, got none" in log
    assert key_line(CENTRAL) not in log
    status.close()
