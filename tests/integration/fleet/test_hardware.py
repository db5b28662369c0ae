"""The tests of boards, of this machine with a real gateway: it answers, and a message from outside gives a result."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from hardware.__main__ import main
from tests.integration.rig import Rig
from tests.integration.worlds import socket_of

pytestmark = pytest.mark.integration


def test_a_message_goes_in_a_result_comes_out_and_the_flow_is_removed(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = rig.gateway()
    gateway.start_ready()
    command = tmp_path / "bin" / "edgert"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m edgert "$@" --socket {socket_of(gateway)}\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    main(["none", "--local", "--broker", f"127.0.0.1:{rig.broker.port}", "--json"])
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert {name: found[name]["verdict"] for name in ("gateway", "broker", "message")} == {
        "gateway": "good", "broker": "good", "message": "good",
    }, found  # fmt: skip
    assert "50 of 50 in closed windows came out" in found["message"]["why"]
    gateway.wait(lambda status: not status["flows"], "the flow's removal")
