"""`edgert diagnostics` of a real gateway and agent: what they say stands in it, secrets and payloads do not."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from edgert.core.text.key_lines import key_line
from tests.agent.rig import RealAgent
from tests.integration.rig import ROOT, Gateway, Rig
from tests.integration.worlds import AIR
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
KEY, MAC_KEY, PASSWORD = bytes(range(32)), bytes(range(32, 64)), 'gate "seven" 7'
PAYLOAD = "payload-4711"


@pytest.fixture
def gateway(rig: Rig, tmp_path: Path) -> Gateway:
    """A gateway with secrets, a flow whose description has one, and input with a result and a malformed payload."""
    for name, text in (("password", f"{PASSWORD}\n"), ("mac.key", f"{key_line(MAC_KEY)}\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    gateway = rig.gateway(
        sensors={"username": "g1", "password_file": str(tmp_path / "password")},
        central={"mac_key_file": str(tmp_path / "mac.key")},
    )
    gateway.start_ready()
    assert rig.deploy(gateway, {**AIR, "description": f"of http://me:{PAYLOAD[:7]}word@host/, {PASSWORD}"})["accepted"]
    good = [("s/a", b'{"time": %d, "v": 1}' % (1_700_000_000 + second)) for second in (0, 90)]
    rig.publish([*good, ("s/b", PAYLOAD.encode())])
    gateway.wait(
        lambda s: (
            s["flows"]
            and s["flows"][0]["malformed"]
            and s["flows"][0]["rows_shipped"]
            and not s["ingest"]["unacknowledged"]
        ),
        "the malformed payload, and the result",
    )
    wait_until(lambda: "malformed payload on 's/b'" in gateway.text(), "the log")
    return gateway


def diagnosed(gateway: Gateway, tmp_path: Path, *more: str) -> dict[str, str]:
    journal = tmp_path / "bin/journalctl"
    journal.parent.mkdir(exist_ok=True)
    said = shlex.quote(f"{PASSWORD} {key_line(MAC_KEY)}")
    journal.write_text(f'#!/bin/sh\ncase "$*" in *edgert*) tac {gateway.log} ;; esac\necho {said}\n')
    journal.chmod(0o755)
    command = [sys.executable, "-m", "edgert", "diagnostics", "-o", "-", "--config", str(tmp_path / "g1.toml"), *more]
    env = {**os.environ, "PATH": f"{journal.parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True, timeout=300)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        members = [(member.name.partition("/")[2], archive.extractfile(member)) for member in archive]
        found = {name: file.read().decode() for name, file in members if file}
    print(done.stderr.decode(), len(done.stdout), "bytes")
    hidden = (PASSWORD, json.dumps(PASSWORD)[1:-1], key_line(KEY), key_line(MAC_KEY), MAC_KEY.hex(), PAYLOAD)
    assert not [(name, secret) for name, text in found.items() for secret in hidden if secret in text]
    return found


def missing(found: dict[str, str]) -> dict[str, str]:
    told: dict[str, str] = json.loads(found["manifest.json"])["missing"]
    return told


def test_status_metrics_and_fleet_are_what_gateway_and_agent_say(gateway: Gateway, tmp_path: Path) -> None:
    agent = RealAgent(tmp_path, "g1-agent", [], [KEY])
    try:
        agent.start()
        wait_until(agent.status, "the agent")
        found = diagnosed(gateway, tmp_path, "--agent-config", str(agent.config))
    finally:
        agent.kill()
    told, now = json.loads(found["status.json"]), gateway.now()
    assert "malformed payload on 's/b'" in found["log-edgert.txt"]
    assert PAYLOAD in gateway.text()
    assert found["log-kernel.txt"] == "[redacted] [redacted]\n"
    same = ("gateway", "fleet", "version", "central.broker", "ingest.messages", "database", "flows.0.filters",
            "flows.0.epoch", "flows.0.rows_shipped", "flows.0.operators.0.rows_out")  # fmt: skip
    assert [at(told, path) for path in same] == [at(now, path) for path in same]
    assert told["flows"][0]["malformed"]["topic"] == "s/b"
    assert "edgert_ingest_messages_total 3.0\n" in found["metrics.txt"]
    assert [member["gateway"] for member in json.loads(found["fleet.json"])["members"]] == ["g1-agent"]
    database = json.loads(found["database.json"])
    assert database["flows"][0]["document"]["operators"] == AIR["operators"]
    assert database["rows"]["flow"] == 1
    assert not [name for name in missing(found) if name.endswith(".json") and name not in ("slots.json", "sched.json")]


def at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value[int(name) if name.isdigit() else name]
    return value


def test_a_gateway_that_is_killed_leaves_settings_log_and_database(gateway: Gateway, tmp_path: Path) -> None:
    gateway.kill()
    found = diagnosed(gateway, tmp_path)
    assert "no program serves it any more" in missing(found)["status.json"]
    assert "refused" in missing(found)["metrics.txt"]
    assert json.loads(found["settings-gateway.json"])["sensors"]["username"] == "g1"
    assert json.loads(found["database.json"])["flows"][0]["name"] == "air"
    assert "is ready" in found["log-edgert.txt"]
    gateway.start_ready()
    gateway.wait(lambda s: s["flows"], "the flow, of a database that was looked at")
