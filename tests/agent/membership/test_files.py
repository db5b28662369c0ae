"""The agent's files: keys for their owner alone, or a credential of systemd; what must outlive a power cut."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.membership.files import read_keys, read_revoked, replace_file, store_epoch
from edgert.boards import files
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


def steps_of(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> list[str]:
    """What is brought to the disk, and which names change, in order."""
    steps: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        steps.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        real_sync(descriptor)

    def replace(path: Path, to: Path) -> Path:
        steps.append(f"replace {to.name}")
        return real_replace(path, to)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write()
    return steps


def test_votes_and_epoch_outlive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is changed in a folder is on the disk only when the folder is."""
    folder = tmp_path / "data"
    folder.mkdir()
    steps = steps_of(monkeypatch, lambda: replace_file(folder / "coordination.json", "{}"))
    assert steps == ["sync coordination.new", "replace coordination.json", "sync data"]
    monkeypatch.undo()
    steps = steps_of(monkeypatch, lambda: store_epoch(folder, 7))
    assert steps == ["sync agent.new", "replace agent.epoch", "sync data"]


def test_files_of_the_ca_outlive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a certificate that was revoked could be good again."""
    folder = tmp_path / "ca"
    folder.mkdir()
    steps = steps_of(monkeypatch, lambda: files.write(folder / "crl.pem", b"x"))
    assert steps == ["sync .crl.pem.part", "replace crl.pem", "sync ca"]
