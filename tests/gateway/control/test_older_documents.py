"""A retained document that was accepted before the last one comes from a broker that went back in time."""

from __future__ import annotations

import json
from typing import Any

from edgert.mqtt.clients.control_plane import MqttRequest
from tests.gateway.mqtt_api_rig import BASE, GOOD, Rig
from tests.waiting import in_loop

OTHER: dict[str, Any] = {**GOOD, "description": "second"}


def retained(rig: Rig, topic: str, document: object, written: bytes = b"") -> bool:
    """Returns True if the gateway refused the document as an older one."""
    request = MqttRequest(f"{topic}/state", written) if written else None
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    return rig.api.refuse_older(f"{BASE}/{topic}", payload, request)


def answered(rig: Rig) -> dict[str, Any]:
    _, answer, _ = rig.published.pop()
    return dict(answer)


@in_loop
async def test_an_older_version_is_refused_and_the_last_one_written_back() -> None:
    rig = Rig()
    await rig.write("flows/f", GOOD)
    await rig.write("flows/f", OTHER)
    assert retained(rig, "flows/f", GOOD)
    answer = answered(rig)
    assert (answer["accepted"], answer["running_version"]) == (False, 2)
    assert "got an earlier one" in f"expected {answer['errors'][0]['expected']}, got {answer['errors'][0]['got']}"
    topic, payload, request = rig.written_back.pop()
    assert (topic, json.loads(payload)["description"]) == (f"{BASE}/flows/f", "second")
    await rig.api.handle_untrusted(topic, payload, request)  # the gateway reads the topic, too
    assert not rig.published
    assert not retained(rig, "flows/f", payload, request.correlation or b"")
    assert retained(rig, "flows/f", OTHER) is False  # the document that was written back is the same, in other words


@in_loop
async def test_a_removed_flow_stays_removed() -> None:
    rig = Rig()
    await rig.write("flows/f", GOOD)
    await rig.write("flows/f", b"")
    assert retained(rig, "flows/f", GOOD)
    assert answered(rig)["running_version"] is None
    assert rig.written_back.pop()[:2] == (f"{BASE}/flows/f", b"")


@in_loop
async def test_the_last_document_and_unknown_ones_are_taken() -> None:
    rig = Rig()
    assert not retained(rig, "flows/f", GOOD)
    await rig.write("flows/f", GOOD)
    await rig.write("flows/f", OTHER)
    assert not retained(rig, "flows/f", OTHER)
    assert not retained(rig, "flows/f", {**GOOD, "description": "third"})
    assert not retained(rig, "flows/f", GOOD, b"another write of the first document")


@in_loop
async def test_a_refused_document_replaces_nothing() -> None:
    rig = Rig()
    await rig.write("flows/f", GOOD)
    await rig.write("flows/f", {"name": "f"})
    assert not retained(rig, "flows/f", GOOD)


@in_loop
async def test_settings_and_models_too() -> None:
    rig = Rig()
    for topic in ("config", "models/air"):
        await rig.write(topic, {"pool": {}})
        await rig.write(topic, {"pool": {"consumption_rows": 3}})
        assert retained(rig, topic, {"pool": {}})
        assert not answered(rig)["accepted"]
    assert not rig.written_back


@in_loop
async def test_it_is_known_after_a_restart_unless_the_entry_is_damaged() -> None:
    rig = Rig()
    await rig.write("flows/f", GOOD)
    await rig.write("flows/f", OTHER)
    rig.api = rig.started()
    assert retained(rig, "flows/f", GOOD)
    rig.flows.notes = dict.fromkeys(rig.flows.notes, b"\xc1")
    rig.api = rig.started()
    assert not retained(rig, "flows/f", GOOD)


@in_loop
async def test_what_is_remembered_of_a_topic_is_bounded() -> None:
    rig = Rig()
    for n in range(30):
        await rig.write("flows/f", {**GOOD, "description": str(n)})
    assert [retained(rig, "flows/f", {**GOOD, "description": str(n)}) for n in (0, 13, 14, 28, 29)] == [
        False, False, True, True, False,
    ]  # fmt: skip
