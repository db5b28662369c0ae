"""Encodings that editors on Windows write: a byte-order mark is skipped, all but UTF-8 is refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.simulation.described import description
from edgert.core.config import load
from edgert.core.errors import DocumentError
from edgert.core.settings.gateway import GatewaySettings
from edgert.core.text_files import text_untrusted
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


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "utf-16-be"])
def test_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_bytes('[gateway]\nid = "B\u00fcro"\n'.encode(encoding))
    got = "line 2: .*byte 0xfc, as in Windows-1252" if encoding == "cp1252" else "line 1: .*UTF-16"
    with pytest.raises(DocumentError, match=f"(?s)gateway.toml.*{got}"):
        load(GatewaySettings, file, {})
    with pytest.raises(DocumentError, match=got):
        read_untrusted(file.read_bytes())


@given(st.binary())
def test_any_bytes_are_text_or_a_problem(content: bytes) -> None:
    try:
        text = text_untrusted(content, "file")
    except DocumentError:
        return
    assert text == content.removeprefix(BOM).decode()
