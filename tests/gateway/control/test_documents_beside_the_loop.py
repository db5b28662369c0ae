"""A large document is checked and compiled beside the event loop: each of these waits for the loop meanwhile, so that
one which ran on the loop would wait in vain."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgert.core.settings.gateway import GatewaySettings
from edgert.flow.document import from_plain
from edgert.operators.registry import REGISTRY
from gateway.control import mqtt_api
from gateway.control.central import CentralConnection
from gateway.flows import files, flows, plans
from gateway.flows.files import deploy_files
from tests.gateway.mqtt_api_rig import BASE, GOOD, Rig
from tests.gateway.whole_gateway import Gateway
from tests.waiting import in_loop, until

ANSWER_S = 60.0
"""The loop answers at once, if it is not held up."""


class Heavy:
    """Stands before a call: the call begins when the loop has answered."""

    def __init__(self, call: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> None:
        self._call, self._loop = call, loop
        self.held_up: list[bool] = []

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        self.held_up.append(not answered.wait(ANSWER_S))
        return self._call(*arguments, **options)


def heavy(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> Heavy:
    found = Heavy(getattr(module, name), asyncio.get_running_loop())
    monkeypatch.setattr(module, name, found)
    return found


@pytest.mark.parametrize("step", ["read_untrusted", "from_plain"])
def test_a_document_over_mqtt_is_read_and_checked_while_the_loop_goes_on(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @in_loop
    async def run() -> None:
        work, rig = heavy(monkeypatch, mqtt_api, step), Rig()
        assert (await rig.write("flows/f", GOOD))["accepted"]
        assert work.held_up == [False]

    run()


@in_loop
async def test_a_model_over_mqtt_is_read_while_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    work, rig = heavy(monkeypatch, mqtt_api, "read_untrusted"), Rig()
    assert (await rig.write("models/m", {"kind": "x"}))["accepted"]
    assert work.held_up == [False]


@in_loop
async def test_a_flow_is_compiled_while_the_loop_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(tmp_path / "db")
    work = heavy(monkeypatch, plans, "FlowRun")
    assert await gateway.flows.deploy(from_plain(GOOD, REGISTRY), "mqtt") == 1
    assert work.held_up == [False]
    gateway.crash()


@in_loop
async def test_documents_of_files_and_of_other_boards_are_checked_while_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    (tmp_path / "f.json").write_text(json.dumps(GOOD))
    read, checked = heavy(monkeypatch, files, "load"), heavy(monkeypatch, flows, "from_plain")
    await deploy_files(gateway.flows, [str(tmp_path / "f.json")])
    assert (await gateway.flows.checked(GOOD)).name == "f"
    assert (gateway.flows.version("f"), read.held_up, checked.held_up) == (1, [False], [False])
    gateway.crash()


@in_loop
async def test_documents_of_one_flow_are_carried_out_in_their_order_though_the_first_takes_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As they come on the central connection: the second comes while the first is checked."""
    rig, begun, release, checked = Rig(), threading.Event(), threading.Event(), list[str]()

    def check(document: Any, registry: Any, *, what: str) -> Any:
        begun.set()
        assert checked or release.wait(ANSWER_S)
        checked.append(document["operators"]["out"]["topic"])
        return from_plain(document, registry, what=what)

    monkeypatch.setattr(mqtt_api, "from_plain", check)
    central = CentralConnection(GatewaySettings(), "g1")
    central.loop = asyncio.get_running_loop()
    central.uplink = cast(Any, SimpleNamespace(acks_topic="acks"))
    central._api = rig.api
    serving = asyncio.ensure_future(central.serve(central.documents, rig.api.handle_untrusted))
    for topic in ("first", "second"):
        document: dict[str, Any] = json.loads(json.dumps(GOOD))
        document["operators"]["out"]["topic"] = topic
        central.message_untrusted(f"{BASE}/flows/f", json.dumps(document).encode(), None)
        await until(begun.is_set, "the first check")
    assert checked == []
    release.set()
    await until(lambda: len(rig.published) == 2, "both answers")
    serving.cancel()
    assert checked == ["first", "second"]
    assert [answer["version"] for _, answer, _ in rig.published] == [1, 2]
