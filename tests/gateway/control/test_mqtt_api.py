"""Documents and settings over MQTT: every write is answered."""

from __future__ import annotations

import pytest

from edgert.core.errors import DocumentError, EdgertError, Problem
from tests.gateway.mqtt_api_rig import BASE, GOOD, Rig
from tests.waiting import in_loop


@in_loop
async def test_a_good_document_is_accepted_with_its_version_and_an_empty_one_removes() -> None:
    rig = Rig()
    answer = await rig.write("flows/f", GOOD)
    assert (answer["accepted"], answer["version"], answer["running_version"], answer["errors"]) == (True, 1, 1, [])
    assert answer["cautions"] == ["f may loop"]
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
    assert (answer["accepted"], answer["running_version"]) == (False, 1)


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
