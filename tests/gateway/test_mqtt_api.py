"""Documents and settings over MQTT: every write is answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from edgert.core.errors import DocumentError, EdgertError, Problem
from edgert.flow.graph import Flow
from edgert.mqtt.clients.control_plane import MqttRequest
from edgert.operators.registry import REGISTRY
from gateway.control.mqtt_api import MqttApi
from gateway.flows.flows import Flows
from gateway.flows.models import Models
from tests.waiting import in_loop

BASE = "edgert/v1/fleet/g1"
GOOD = {"name": "f", "operators": {"in": {"type": "mqtt_source", "topic": "x"},
                                   "out": {"type": "publish", "input": "in", "topic": "y"}}}  # fmt: skip


class FakeModels(Models):
    def __init__(self, flows: FakeFlows) -> None:
        super().__init__({}, lambda run, operator, document: None)
        self.flows = flows

    async def offer_untrusted(self, name: str, document: Mapping[str, Any], *, of_fleet: bool = False) -> list[str]:
        if self.flows.fault:
            raise self.flows.fault
        return [f"{'fleet' if of_fleet else 'f'}/{name}"]


class FakeFlows:
    registry = REGISTRY

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.fault: Exception | None = None
        self.models = FakeModels(self)

    def version(self, name: str) -> int | None:
        return self.running.get(name)

    async def deploy(self, flow: Flow, origin: str) -> int:
        if self.fault:
            raise self.fault
        self.running[flow.name] = self.running.get(flow.name, 0) + 1
        return self.running[flow.name]

    async def remove(self, name: str) -> bool:
        return self.running.pop(name, None) is not None


class Rig:
    def __init__(self) -> None:
        self.flows = FakeFlows()
        self.published: list[tuple[str, Any, bool]] = []
        self.api = MqttApi("fleet", "g1", cast(Flows, self.flows), self.answer, self.apply)

    def answer(self, topic: str, payload: bytes, request: MqttRequest | None) -> None:
        self.published.append((topic, json.loads(payload), request is None))

    async def apply(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        if "pool" in document:
            return {"applied": sorted(document)}
        if "boom" in document:
            raise RuntimeError("as told")
        raise DocumentError("config", [Problem("sensors.host", "a setting that may change", "it")])

    async def write(self, topic: str, document: object) -> Any:
        payload = document if isinstance(document, bytes) else json.dumps(document).encode()
        await self.api.handle_untrusted(f"{BASE}/{topic}", payload, None)
        answered, answer, retain = self.published.pop()
        assert (answered, retain, self.published) == (f"{BASE}/{topic}/state", True, [])
        return answer


@in_loop
async def test_a_good_document_is_accepted_with_its_version_and_an_empty_one_removes() -> None:
    rig = Rig()
    answer = await rig.write("flows/f", GOOD)
    assert (answer["accepted"], answer["version"], answer["running_version"], answer["errors"]) == (True, 1, 1, [])
    answer = await rig.write("flows/f", b"")
    assert (answer["accepted"], answer["removed"], answer["running_version"], rig.flows.running) == (
        True,
        True,
        None,
        {},
    )


@in_loop
async def test_a_document_with_five_errors_is_answered_with_all_five_and_the_last_good_one_runs_on() -> None:
    rig = Rig()
    await rig.write("flows/f", GOOD)
    bad = {
        "name": "f",
        "operators": {
            "in": {"type": "mqtt_source", "topic": "x/#/y", "qos": 7},
            "ok": {"type": "filter", "input": "in", "where": "v >"},
            "w": {"type": "tumbling_window", "input": "ok", "size_s": "60", "aggregates": {"n": "median(v)"}},
            "out": {"type": "ship", "input": "w"},
        },
    }
    answer = await rig.write("flows/f", bad)
    paths = {e["path"] for e in answer["errors"]}
    assert {"operators.in.topic", "operators.in.qos", "operators.ok.where", "operators.w.size_s"} <= paths
    assert len(answer["errors"]) == 5
    assert all(set(e) == {"path", "expected", "got"} for e in answer["errors"])
    assert (answer["accepted"], answer["running_version"], rig.api.rejected) == (False, 1, 1)


@in_loop
async def test_a_document_under_another_name_or_an_impossible_one_is_refused() -> None:
    rig = Rig()
    answer = await rig.write("flows/g", GOOD)
    assert [(e["path"], e["got"]) for e in answer["errors"]] == [("name", "'f'")]
    assert [e["path"] for e in (await rig.write("flows/Not A Name", GOOD))["errors"]] == ["topic"]
    assert rig.flows.running == {}


@pytest.mark.parametrize("payload", [b"{", b"\xff\xfe", b"[]", b"name = ", b"null", b'{"name": "f"}', b"\0" * 400_000])
def test_bytes_that_are_no_document_are_answered(payload: bytes) -> None:
    @in_loop
    async def run() -> None:
        answer = await Rig().write("flows/f", payload)
        assert not answer["accepted"]
        assert answer["errors"]

    run()


@pytest.mark.parametrize("fault", [EdgertError("does not stop"), KeyError("x"), RuntimeError("y")])
def test_a_fault_while_it_is_carried_out_is_answered_too(fault: Exception) -> None:
    @in_loop
    async def run() -> None:
        rig = Rig()
        rig.flows.fault = fault
        answer = await rig.write("flows/f", GOOD)
        assert (answer["accepted"], answer["running_version"]) == (False, None)
        assert str(fault) in answer["errors"][0]["got"]

    run()


@in_loop
async def test_settings_are_applied_or_refused_with_their_path_and_always_answered() -> None:
    rig = Rig()
    answer = await rig.write("config", {"pool": {"consumption_rows": 9}})
    assert (answer["accepted"], answer["version"], answer["applied"]) == (True, 1, ["pool"])
    answer = await rig.write("config", {"sensors": {"host": "evil"}})
    assert (answer["accepted"], [e["path"] for e in answer["errors"]]) == (False, ["sensors.host"])
    assert not (await rig.write("config", {"boom": {}}))["accepted"]
    assert not (await rig.write("config", b"{"))["accepted"]


@in_loop
async def test_an_unknown_command_is_told_which_there_are_and_topics_of_others_are_left_alone() -> None:
    rig = Rig()
    for topic in (f"{BASE}/metrics", f"{BASE}/config/state", f"{BASE}/flows/"):
        await rig.api.handle_untrusted(topic, b"x", None)
    assert rig.published == []


@in_loop
async def test_a_model_is_answered_with_its_version_and_who_uses_it() -> None:
    rig = Rig()
    answer = await rig.write("models/air", {"kind": "linear_regression", "version": 4})
    assert (answer["accepted"], answer["version"], answer["operators"], answer["errors"]) == (True, 4, ["f/air"], [])
    answer = await rig.write("models/air", b"")
    assert (answer["accepted"], answer["removed"]) == (True, True)


@in_loop
async def test_a_model_of_the_fleet_is_answered_by_each_gateway_on_its_own() -> None:
    rig = Rig()
    assert rig.api.subscriptions[-1] == ("edgert/v1/fleet/@models/+", 1), "after the gateway's own"
    for payload in (b'{"kind": "linear_regression", "version": 4}', b""):
        await rig.api.handle_untrusted("edgert/v1/fleet/@models/air", payload, None)
    (topic, answer, retained), (_, removed, _) = rig.published
    assert (topic, retained) == (f"{BASE}/models/air/state", True)
    assert (answer["version"], answer["operators"]) == (4, ["fleet/air"])
    assert removed["removed"]


@in_loop
async def test_a_bad_model_is_answered_with_every_error() -> None:
    rig = Rig()
    rig.flows.fault = DocumentError("model", [Problem("kind", "this", "that"), Problem("tree", "a", "b")])
    answer = await rig.write("models/air", {})
    assert (answer["accepted"], [e["path"] for e in answer["errors"]]) == (False, ["kind", "tree"])
    rig.flows.fault = RuntimeError("as told")
    answer = await rig.write("models/air", {})
    assert not answer["accepted"]
    assert "as told" in answer["errors"][0]["got"]
    assert not (await rig.write("models/air", b"{"))["accepted"]
