"""A byte-order mark, as editors on Windows write it, in front of files that people write."""

from __future__ import annotations

from pathlib import Path

from agent.simulation.described import description
from edgert.core.config import load
from edgert.core.settings.gateway import GatewaySettings
from edgert.demo import trace
from edgert.flow.document import read_untrusted
from edgert.mqtt.clients.credentials import read_password
from provisioning.document import files_untrusted

BOM = b"\xef\xbb\xbf"


def test_settings(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_bytes(BOM + b'[gateway]\r\nid = "pi"\r\n')
    assert load(GatewaySettings, tmp_path / "gateway.toml", {}).gateway.id == "pi"


def test_a_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(BOM + "gr\u00fcn\r\n".encode())
    assert read_password(str(tmp_path / "password"), "sensors") == "gr\u00fcn"


def test_documents() -> None:
    for document in (BOM + b'name = "f"', BOM + b'{"name": "f"}'):
        assert read_untrusted(document) == read_untrusted(document.decode()) == {"name": "f"}


def test_a_provisioning_file() -> None:
    text = '[network]\nhostname = "pi"\n'
    assert files_untrusted(BOM.decode() + text) == files_untrusted(text)


def test_a_simulated_fleet_and_a_trace(tmp_path: Path) -> None:
    fleet = tmp_path / "boards.toml"
    fleet.write_bytes(BOM + b'[otherwise]\ndelay_ms = 1\n[[boards]]\nname = "a"\n')
    (board,) = description.read(fleet).boards
    assert board.name == "a"
    recorded = b'1422748800000,{"e":[{"sv":"a","n":"source"},{"v":"1","n":"t"}],"bt":1422748800000}\n'
    plain, marked = tmp_path / "plain.csv", tmp_path / "marked.csv"
    plain.write_bytes(recorded)
    marked.write_bytes(BOM + recorded)
    assert list(trace.read(marked)) == list(trace.read(plain))
