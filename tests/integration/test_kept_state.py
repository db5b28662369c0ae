"""State that goes on in the next version of a flow, with a real broker and real processes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.rig import Rig

pytestmark = pytest.mark.integration


def document(description: str) -> dict[str, Any]:
    operators = {
        "names": {"type": "mqtt_source", "topic": "names/{source}", "retained": True},
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "named": {
            "type": "join_latest", "inputs": ["in", "names"], "on": ["source"], "fields": ["label"], "missing": "drop",
        },
        "by": {"type": "key_by", "input": "named", "keys": ["label"]},
        "hour": {"type": "tumbling_window", "input": "by", "size_s": 3600, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "hour"},
    }  # fmt: skip
    return {"name": "f", "description": description, "operators": operators}


@pytest.mark.parametrize(
    "pool", [{}, {"slots": 2, "fusion": "none", "placement": "even"}], ids=["one process", "slots"]
)
def test_look_ups_and_windows_go_on_in_the_next_version_and_after_a_restart(rig: Rig, pool: dict[str, Any]) -> None:
    gateway, collector = rig.gateway(pool=pool), rig.collector()
    collector.start()
    gateway.start_ready()
    rig.publish([("names/a", b'{"time": 1700000000, "label": "hall"}')], retain=True)
    assert rig.deploy(gateway, document("1"))["accepted"]
    gateway.wait(lambda s: s["ingest"]["messages"] >= 1 and not s["ingest"]["unacknowledged"], "the retained message")
    sent = 0
    for version in ("2", "3", "4"):
        messages = [("x/a", b'{"time": %d}' % (1_700_000_000 + n)) for n in range(sent, sent + 20)]
        sent += rig.publish(messages)
        answer = rig.deploy(gateway, document(version))
        assert (answer["version"], answer["state"]["kept"], answer["state"]["lost"]) == (
            int(version), ["named", "hour"], []
        )  # fmt: skip
        if version == "3":
            gateway.kill()
            gateway.start_ready()
        elif version == "2":
            assert gateway.terminate() == 0
            gateway.start_ready()
    assert rig.landed("f") == [], "no window goes early"
    rig.finish(gateway, "f", 0)
    assert [(row["label"], row["n"]) for row in rig.landed("f")] == [("hall", sent)]
