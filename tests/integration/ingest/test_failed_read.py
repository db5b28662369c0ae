"""A fault of our own in the handler of a read: nothing of that read is acknowledged, and all of it comes again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgert.core.settings.gateway import Central, Flows, Gateway, GatewaySettings, Sensors, Web
from edgert.core.toml import to_toml
from gateway.daemon import Daemon
from gateway.web.health import reasons
from tests.brokers import Broker
from tests.integration.rig import Message, Rig
from tests.waiting import in_loop, until

pytestmark = pytest.mark.integration

SENT = 200
DOCUMENT = {
    "name": "f",
    "checkpoint": {"interval_s": 0.2},
    "operators": {
        "readings": {"type": "mqtt_source", "topic": "room/{source}"},
        "window": {"type": "tumbling_window", "input": "readings", "size_s": 86_400, "aggregates": {"n": "count()"}},
        "central": {"type": "ship", "input": "window"},
    },
}


def message(number: str) -> Message:
    return "room/hall", b'{"n": %s}' % number.encode()


def taken(daemon: Daemon) -> int:
    """Rows that came to the window."""
    (flow,) = daemon.status.object()["flows"]
    return sum(operator["rows_in"] for operator in flow["operators"] if operator["name"] == "window")


@in_loop
async def test_an_exception_in_the_handler_loses_no_message_and_is_said(
    tmp_path: Path, mosquitto: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = mosquitto()
    file = tmp_path / "f.toml"
    file.write_text(to_toml(DOCUMENT))
    daemon = Daemon(
        GatewaySettings(
            gateway=Gateway(id="g1", data_dir=str(tmp_path / "data")), sensors=Sensors(port=broker.port),
            web=Web(enabled=False), central=Central(enabled=False), flows=Flows(files=(str(file),)),
        )
    )  # fmt: skip
    running = asyncio.create_task(daemon.run())
    rig = Rig(tmp_path, broker)
    client = daemon.ingest.client
    try:
        await until(lambda: client.status.connected, "the connection")
        await until(lambda: daemon.flows.runs, "the flow")
        its = daemon.ingest
        await until(lambda: its.subscriptions.sent and not its.subscriber.unanswered, "the subscription")
        await asyncio.to_thread(rig.publish, [message(str(n)) for n in range(SENT // 2)])
        await until(lambda: taken(daemon) == SENT // 2, "what comes before the fault")
        put = daemon.host.put
        said: list[str] = []

        def failing(*given: Any) -> None:
            if len(said) < 2:
                said.append("")
                raise RuntimeError("a fault of ours")
            put(*given)

        monkeypatch.setattr(daemon.host, "put", failing)
        sending = asyncio.create_task(
            asyncio.to_thread(rig.publish, [message(str(n)) for n in range(SENT // 2, SENT)], rate=200.0)
        )
        await until(lambda: daemon.ingest.failed, "the fault to be said")
        status = daemon.status.object()
        assert "a fault of ours" in status["ingest"]["failed"]
        assert any("not acknowledged: RuntimeError: a fault of ours" in line for line in reasons(status))
        await sending
        await until(lambda: taken(daemon) >= SENT, "what was not acknowledged, once more")
        await until(lambda: not daemon.ingest.inbox.owed, "the acknowledgements")
        assert taken(daemon) == SENT, "and nothing twice"
        ingest = daemon.status.object()["ingest"]
        assert (ingest["failed"], len(said)) == ("", 2)
        assert ingest["untaken"] > 0
        assert ingest["reconnects"] == 2
    finally:
        daemon.stop()
        async with asyncio.timeout(60.0):
            await running
