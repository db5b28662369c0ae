"""Functions that take bytes or texts from outside and have no fuzz test beside those of their room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.metrics import MetricsServer
from agent.osched.cooperation.terms import unpack_untrusted as terms_untrusted
from edgert.boards.revocation import read_list_untrusted, revoked_names_untrusted
from edgert.central.collector.known_gateway import GatewayCounters
from edgert.central.collector.macs import ResultMacs
from edgert.central.collector.messages import ResultTopics
from edgert.codecs import make
from edgert.codecs.base import parse_untrusted, repeated_keys_untrusted, text_untrusted
from edgert.core.batch import Row
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError, PayloadError, ProtocolError
from edgert.core.packing import unpack_untrusted
from edgert.core.results.results import results_topic
from edgert.core.settings.gateway import GatewaySettings
from edgert.demo.trace import TraceError, parse_line_untrusted
from edgert.mqtt.packets import properties
from gateway.control.central import CentralConnection
from gateway.ingest.broker_drops import BrokerDrops
from gateway.uplink.macs import Macs
from gateway.web.guard import host_name_untrusted
from provisioning import on_board
from tests.fuzz.nearly import as_bytes, texts
from tests.gateway.mqtt_api_rig import BASE, GOOD, Rig

SENML = [{"bn": "hall:", "bt": 1.7e9, "n": "t", "v": 21.5}, {"n": "h", "v": 40}]
ROW = {"time": 1.7e9, "source": "hall", "t": 21.5, "deep": {"a": [1, 2]}, "text": "é"}
KEY = bytes(range(32))


@given(st.binary(max_size=80))
@example(b"[::1]:8080")
@example(b"[")
def test_host_headers(header: bytes) -> None:
    assert isinstance(host_name_untrusted(header), str)


@given(st.lists(st.one_of(st.binary(max_size=30), st.integers(-9, 2**70).map(lambda n: b"%d" % n)), max_size=8))
def test_counts_of_a_broker(payloads: list[bytes]) -> None:
    drops = BrokerDrops("$SYS/dropped", "127.0.0.1:1883")
    drops.take_untrusted(payloads, 1.0)
    assert (drops.dropped or 0) >= 0
    assert drops.bad <= len(payloads)


@pytest.mark.parametrize(("codec", "sample"), [("json", ROW), ("senml", SENML), ("value", 21.5)])
def test_payloads_of_sensors(codec: str, sample: Any) -> None:
    """One payload of a batch that is no good costs no other."""
    good = json.dumps(sample).encode()

    @given(as_bytes(sample))
    def look(payload: bytes) -> None:
        with suppress(PayloadError):
            rows: list[Row] = []
            assert make(codec).decode_untrusted(payload, {"source": "hall"}, 1.0, rows, "room/hall") >= 0
            assert all("time" in row and "source" in row for row in rows)
        found = make(codec).decode_batch_untrusted(["a"] * 3, [good, payload, good], lambda topic: {}, 1.0)
        assert len(found.rows) >= 2

    look()


@given(as_bytes(ROW))
def test_json(payload: bytes) -> None:
    with suppress(UnicodeDecodeError):
        assert isinstance(text_untrusted(payload), str)
    with suppress(PayloadError):
        document = parse_untrusted(payload)
        assert repeated_keys_untrusted(payload, document, lambda key: True) >= 0
    with suppress(PayloadError):
        unpack_untrusted(payload)


@given(st.binary(max_size=40), st.integers(0, 40), st.sampled_from(["connack", "publish", "disconnect", "suback"]))
def test_fields_of_mqtt(data: bytes, at: int, place: str) -> None:
    end = len(data)
    reads: list[Callable[[], tuple[Any, int]]] = [
        lambda: properties.read_varint_untrusted(data, at, end),
        lambda: properties.read_binary_untrusted(data, at, end),
        lambda: properties.read_text_untrusted(data, at, end),
        lambda: properties.read_properties_untrusted(data, at, end, place),
    ]
    for read in reads:
        with suppress(ProtocolError):
            assert at < read()[1] <= end
    with suppress(ProtocolError):
        properties.text_untrusted(data)


@given(texts)
@example('1,{"e":[{"sv":"x"}],"bt":1}')
def test_lines_of_a_trace(line: str) -> None:
    with suppress(TraceError):
        assert parse_line_untrusted(line, "trace:1").source


@given(st.binary(max_size=100).map(lambda raw: b"-----BEGIN X509 CRL-----\n" + raw + b"\n-----END X509 CRL-----\n"))
def test_revocation_lists(pem: bytes) -> None:
    with suppress(EdgertError):
        read_list_untrusted(pem, "crl.pem")
    with suppress(EdgertError):
        revoked_names_untrusted(pem, "crl.pem")


@given(st.binary(max_size=200))
def test_messages_with_macs(message: bytes) -> None:
    with suppress(PayloadError):
        Macs(KEY).payload_untrusted(message, "t")
    for keys in ((), (KEY,)):
        counters = GatewayCounters()
        found = ResultMacs("fleet", keys, False, counters, VirtualClock()).payload_untrusted(message, "t")
        assert found is not None or counters.not_authentic == 1


@given(st.lists(st.one_of(st.text(max_size=5), st.sampled_from(["edgert", "v1", "@results", "9", "g1", "air"]))))
@example(["edgert", "v1", "fleet", "@results", "9", "g1", "air"])
def test_topics_of_results(levels: list[str]) -> None:
    topic, counters = "/".join(levels), GatewayCounters()
    taken = ResultTopics("fleet", counters).has_untrusted(topic)
    assert taken == (topic == results_topic("fleet", "g1", "air"))
    assert counters.bad_topics == (not taken)


@given(as_bytes([1, 2, {"a": 3}]))
def test_terms_of_other_boards(payload: bytes) -> None:
    with suppress(ProtocolError):
        terms_untrusted(payload)


@given(st.binary(max_size=100).map(lambda raw: raw + b"\r\n\r\n"))
@example(b"GET /metricsx HTTP/1.1\r\n\r\n")
@example(b"GET  /metrics\r\n\r\n")
def test_requests_for_something_else_than_metrics(head: bytes) -> None:
    assert MetricsServer(dict)._answer_untrusted(head).startswith(b"HTTP/1.1 404 ")


@given(st.one_of(as_bytes(GOOD), as_bytes({"sensors": {"host": "x"}, "pool": {"slots": 2}})), st.integers(0, 4), texts)
def test_documents_and_commands_over_mqtt(payload: bytes, kind: int, name: str) -> None:
    """Nothing that they hold raises, and whatever is answered is JSON."""
    topic = [f"flows/{name}", f"models/{name}", "config", f"cmd/{name}", name][kind]
    rig = Rig()
    asyncio.run(rig.api.handle_untrusted(f"{BASE}/{topic}", payload, None))
    assert len(rig.published) <= 1


@given(as_bytes(ROW), texts)
def test_messages_on_the_central_connection(payload: bytes, below: str) -> None:
    """Each is put into one of the queues."""

    async def receive() -> None:
        central = CentralConnection(GatewaySettings(), "g1")
        central.loop = asyncio.get_running_loop()
        central.uplink = cast(Any, SimpleNamespace(acks_topic="acks"))
        central._api = Rig().api
        for topic in ("acks", f"{BASE}/cmd/{below}", f"{BASE}/{below}"):
            central.message_untrusted(topic, payload, None)
        await asyncio.sleep(0)
        assert central.acknowledgements.qsize() == 1
        assert (await central.documents.get())[0] == f"{BASE}/{below}"
        assert sum(central.drops.values()) == 0

    asyncio.run(receive())


@given(st.one_of(st.binary(max_size=300), as_bytes({"gateway": {"id": "g1"}}), st.just(b'[gateway]\nid = "g1"\n')))
def test_provisioning_files(content: bytes) -> None:
    """A faulty one stays, with its errors beside it. Zeros are one that was taken."""
    with TemporaryDirectory() as folder:
        boot, stored = Path(folder) / "boot", Path(folder) / "stored"
        boot.mkdir()
        (boot / on_board.FILE).write_bytes(content)
        taken = on_board.take_untrusted(boot, stored, "g1")
        if content and not content.strip(b"\0"):
            assert not taken
            assert not list(boot.iterdir())
            return
        assert taken != (boot / on_board.ERRORS).exists()
