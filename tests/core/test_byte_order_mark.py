"""A byte-order mark, as editors on Windows write it, in front of files that people write."""

from __future__ import annotations

from pathlib import Path

from edgert.core.config import load
from edgert.core.settings.gateway import GatewaySettings
from edgert.flow.document import read_untrusted
from edgert.mqtt.clients.credentials import read_password
from provisioning.document import files_untrusted

BOM = b"\xef\xbb\xbf"


def test_settings(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_bytes(BOM + b'[gateway]\r\nid = "pi"\r\n')
    assert load(GatewaySettings, tmp_path / "gateway.toml", {}).gateway.id == "pi"


def test_a_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(BOM + "gr\u00fcn\r\n".encode())
    assert read_password(str(tmp_path / "password")) == "gr\u00fcn"


def test_documents() -> None:
    for document in (BOM + b'name = "f"', BOM + b'{"name": "f"}'):
        assert read_untrusted(document) == read_untrusted(document.decode()) == {"name": "f"}


def test_a_provisioning_file() -> None:
    text = '[network]\nhostname = "pi"\n'
    assert files_untrusted(BOM.decode() + text) == files_untrusted(text)
