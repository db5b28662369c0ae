"""The control plane over a real broker: birth and Will, commands, results to `publish` sinks, a clean stop."""

from __future__ import annotations

import json
import queue
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgert.core.toml import to_toml
from tests.examples import examples
from tests.integration import truth
from tests.integration.rig import FLEET, ROOT, Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
BASE = f"edgert/v1/{FLEET}/g1"


def _listen(rig: Rig, topic: str) -> tuple[paho.Client, queue.Queue[paho.MQTTMessage]]:
    inbox: queue.Queue[paho.MQTTMessage] = queue.Queue()
    client = rig.client()
    client.on_message = lambda _c, _d, message: inbox.put(message)
    rig.subscribe(client, topic)
    return client, inbox


def _next_state(inbox: queue.Queue[paho.MQTTMessage]) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(inbox.get(timeout=60).payload)
    return state


def test_birth_will_and_farewell_tell_whether_the_gateway_lives(rig: Rig) -> None:
    gateway = rig.gateway()
    client, states = _listen(rig, f"{BASE}/status")
    gateway.start_ready()
    assert _next_state(states)["state"] == "online"
    gateway.kill()
    assert _next_state(states) == {"state": "offline", "reason": "connection lost"}
    gateway.start_ready()
    assert _next_state(states)["state"] == "online"
    assert gateway.terminate() == 0
    assert _next_state(states) == {"state": "offline", "reason": "stopped"}
    client.disconnect()
    client.loop_stop()


def test_commands_answer_to_the_response_topic_with_the_correlation_data(rig: Rig) -> None:
    gateway = rig.gateway()
    gateway.start_ready()
    gateway.wait(lambda s: s["central"]["connected"], "the control connection")
    client, answers = _listen(rig, "answers/here")
    for number, (verb, key) in enumerate([("status", "gateway"), ("checkpoint", "committed"), ("dance", "error")]):
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ResponseTopic, properties.CorrelationData = "answers/here", bytes([number])
        client.publish(f"{BASE}/cmd/{verb}", b"", 1, properties=properties)
        answer = answers.get(timeout=60)
        assert key in json.loads(answer.payload)
        assert answer.properties is not None
        assert getattr(answer.properties, "CorrelationData", None) == bytes([number])
    client.disconnect()
    client.loop_stop()


def test_published_results_arrive_with_their_topic_filled_from_the_row(rig: Rig) -> None:
    packs = truth.packs()[:50]
    gateway = rig.gateway()
    gateway.start_ready()
    document = truth.document(name="alarms")
    document["operators"]["warm"] = {
        "type": "filter",
        "input": "readings",
        "where": "temperature > 7",
    }
    document["operators"]["tell"] = {"type": "publish", "input": "warm", "topic": "warm/{source}", "codec": "json"}
    assert rig.deploy(gateway, document)["accepted"]
    client, told = _listen(rig, "warm/+")
    rig.publish(truth.as_messages(packs))
    warm = [truth.fields(p) for p in packs if truth.fields(p)["temperature"] > 7]
    assert warm
    got = [told.get(timeout=60) for _ in warm]
    assert {m.topic for m in got} == {f"warm/{w['source']}" for w in warm}
    assert sorted(json.loads(m.payload)["temperature"] for m in got) == sorted(w["temperature"] for w in warm)
    client.disconnect()
    client.loop_stop()


def test_a_flow_goes_on_after_a_stop_with_its_open_windows(rig: Rig) -> None:
    packs = truth.packs()
    gateway, collector = rig.gateway(), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(size_s=3600.0))["accepted"]
    rig.publish(truth.as_messages(packs[:300]))
    gateway.wait(lambda s: s["ingest"]["messages"] >= 300, "the first part")
    assert gateway.terminate() == 0
    gateway.start_ready()
    assert [f["name"] for f in gateway.now()["flows"]] == ["city-air"]
    rig.publish(truth.as_messages(packs[300:]))
    rig.finish(gateway, "city-air", 700)
    assert rig.counts("city-air") == {key: row["n"] for key, row in truth.expected(packs, 3600.0).items()}


def test_sigterm_and_sigint_end_it_at_any_moment_after_the_start(rig: Rig) -> None:
    """Around the connection to the central side, where much happens in one turn of the loop."""
    gateway = rig.gateway()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(size_s=60.0))["accepted"]
    assert gateway.terminate() == 0
    for started, attempt in enumerate(range(0, 12, examples(3, 1)), 2):
        gateway.start()
        assert gateway.process is not None
        wait_until(lambda: gateway.text().count("is ready") == started, "the gateway to be ready")  # noqa: B023
        time.sleep(0.01 * attempt)
        gateway.process.send_signal(signal.SIGINT if attempt % 2 else signal.SIGTERM)
        assert gateway.process.wait(60.0) == 0, gateway.text()[-2000:]


def test_a_model_replaces_another_while_the_flow_runs_and_a_bad_one_does_not(rig: Rig) -> None:
    packs = truth.packs()[:20]
    gateway = rig.gateway()
    gateway.start_ready()
    document = truth.document(name="guesses")
    document["operators"]["guess"] = {
        "type": "predict", "input": "readings", "model": "air", "fields": ["temperature"], "output": "expected",
        "initial": {"kind": "linear_regression", "coefficients": {"temperature": 1}},
    }  # fmt: skip
    document["operators"]["tell"] = {"type": "publish", "input": "guess", "topic": "told/{source}", "codec": "json"}
    assert rig.deploy(gateway, document)["accepted"]
    client, told = _listen(rig, "told/+")
    answers_client, answers = _listen(rig, f"{BASE}/models/air/state")

    def guessed() -> list[float]:
        rig.publish(truth.as_messages(packs))
        rows = [json.loads(told.get(timeout=60).payload) for _ in packs]
        return [round(row["expected"] - row["temperature"], 6) for row in rows]

    assert guessed() == [0.0] * len(packs)
    model = {"kind": "linear_regression", "version": 2, "intercept": 5, "coefficients": {"temperature": 1}}
    client.publish(f"{BASE}/models/air", json.dumps(model), 1, retain=True)
    answer = _next_state(answers)
    assert (answer["accepted"], answer["version"], answer["operators"]) == (True, 2, ["guesses/guess"])
    assert guessed() == [5.0] * len(packs)
    client.publish(f"{BASE}/models/air", json.dumps(model | {"coefficients": {"pressure": 1}}), 1, retain=True)
    answer = _next_state(answers)
    assert (answer["accepted"], [e["path"] for e in answer["errors"]]) == (False, ["coefficients.pressure"])
    assert guessed() == [5.0] * len(packs)
    for each in (client, answers_client):
        each.disconnect()
        each.loop_stop()


@pytest.mark.skipif(not shutil.which("mosquitto_sub"), reason="needs mosquitto_sub, of the package mosquitto-clients")
def test_the_recipe_of_the_guide_waits_for_the_answer_to_this_write_and_not_to_the_last(
    rig: Rig, tmp_path: Path
) -> None:
    """As pasted, but for port and fleet: a good document, then a wrong one, whose answer is not the retained one."""
    blocks = re.findall(r"```sh\n(mosquitto_sub .*?)```", (ROOT / "docs" / "mqtt-interface.md").read_text(), re.S)
    assert len(blocks) == 1
    recipe = blocks[0].replace("-p 1883", f"-p {rig.broker.port}").replace("/default/", f"/{FLEET}/")
    gateway = rig.gateway()
    gateway.start_ready()
    gateway.wait(lambda s: s["central"]["connected"], "the control connection")
    good = to_toml(truth.document(name="city-air"))
    for text, accepted in ((good, True), (good.replace('"mqtt_source"', '"mqtt_sauce"'), False)):
        (tmp_path / "city-air.toml").write_text(text)
        printed: list[str] = []

        def pasted() -> str:
            """Pastes it; empty where the subscription took longer than the recipe's second."""
            command = ["sh", "-c", recipe]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
            printed.append(done.stdout)  # noqa: B023 - called here
            return done.stdout

        wait_until(pasted, "an answer")
        assert json.loads(printed[-1])["accepted"] is accepted
