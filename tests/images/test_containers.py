"""The test of three boards in containers, without containers: what it needs, its documents, and what it counts."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import paho.mqtt.client as paho
import pytest

from edgert.cli._documents import load, registry
from images.containers import board
from images.containers.__main__ import COMMON, FLOW, Client
from images.qemu.central import amiss
from images.qemu.machine import BootError
from provisioning.document import files_untrusted


def test_what_is_missing_is_said_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name == "systemd-nspawn" else name)
    with pytest.raises(BootError, match="as root: apt-get install systemd-container"):
        board.enter("images.containers", [])


def test_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(BootError, match="needs root"):
        board.enter("images.containers", [])


def test_settings_and_flow_are_valid(tmp_path: Path) -> None:
    assert tomllib.loads(files_untrusted(COMMON)["agent.toml"])["agent"] == {"discovery": "mdns"}
    path = tmp_path / "counts.toml"
    path.write_text(FLOW.format(name="counts"))
    assert {"seconds", "out"} <= set(load(path, registry()).nodes)


def test_a_window_that_comes_again_is_counted_once() -> None:
    client = Client.__new__(Client)
    client.found, client.again = {}, 0
    for start in (600, 610, 610):
        message = SimpleNamespace(payload=json.dumps({"window_start": start, "n": 10}))
        client._on_message(cast(paho.Client, None), None, cast(paho.MQTTMessage, message))
    assert (client.found, client.again) == ({600: 10, 610: 10}, 1)
    assert amiss(client.found, [600]) == {620: -10, 630: -10, 640: -10}
