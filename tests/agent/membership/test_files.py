"""The fleet's key file: for its owner alone, or a credential that systemd hands over."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from agent.membership.files import read_keys, read_revoked
from edgert.core.errors import EdgertError

KEY = bytes(range(32))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.key"
    path.write_bytes(base64.b64encode(KEY) + b"\n")
    return path


def test_a_key_that_others_may_read_is_refused(key_file: Path) -> None:
    key_file.chmod(0o640)
    with pytest.raises(EdgertError, match=r"^agent\.key_file .*only its owner"):
        read_keys(key_file)
    key_file.chmod(0o600)
    assert read_keys(key_file) == [KEY]


def test_a_file_that_is_missing_or_none_is_named_with_its_setting(key_file: Path) -> None:
    with pytest.raises(EdgertError, match=r"^agent\.crl_file .*: expected the fleet's list .*No such file"):
        read_revoked(key_file.parent / "crl.pem")
    key_file.write_text("no key\n")
    key_file.chmod(0o600)
    with pytest.raises(EdgertError, match=r"^agent\.key_file .*, line 1: expected base64"):
        read_keys(key_file)
    key_file.unlink()
    with pytest.raises(EdgertError, match=r"^agent\.key_file .*: expected the fleet's key file: No such file"):
        read_keys(key_file)


def test_a_credential_of_systemd_shows_its_access_list_as_the_groups_mode(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file.chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(key_file.parent))
    assert read_keys(key_file) == [KEY]
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(key_file.parent / "other"))
    with pytest.raises(EdgertError, match="only its owner"):
        read_keys(key_file)
