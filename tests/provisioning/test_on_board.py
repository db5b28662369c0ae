"""The file is taken from its partition once: stored, then wiped there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from provisioning.document import files_untrusted
from provisioning.on_board import ERRORS, FILE, store, take_untrusted
from tests.provisioning.keys import KEY


def partition(tmp_path: Path, text: str) -> Path:
    boot = tmp_path / "boot"
    boot.mkdir()
    (boot / FILE).write_text(text)
    return boot


def test_a_file_is_stored_and_wiped(tmp_path: Path) -> None:
    boot, stored = partition(tmp_path, '[gateway]\nid = "g7"\n'), tmp_path / "stored"
    (boot / ERRORS).write_text("of an earlier try")
    same = boot / "same-file"
    same.hardlink_to(boot / FILE)
    assert take_untrusted(boot, stored)
    assert 'id = "g7"' in (stored / "gateway.toml").read_text()
    assert [path.name for path in boot.iterdir()] == ["same-file"]
    assert set(same.read_bytes()) == {0}  # its content went, too, and not only its name
    assert not list(stored.rglob("*.part"))
    assert not take_untrusted(boot, stored)  # the next start


def test_a_later_file_closes_what_an_earlier_one_has_opened(tmp_path: Path) -> None:
    store(tmp_path, files_untrusted(f'[wifi]\nname = "a"\npassword = "12345678"\n[ssh]\nkeys = ["{KEY}"]\n'))
    assert stat.S_IMODE((tmp_path / "network/wifi.conf").stat().st_mode) == 0o600
    assert (tmp_path / "ssh/authorized_keys").read_text() == f"{KEY}\n"
    store(tmp_path, files_untrusted(""))
    assert not (tmp_path / "network/wifi.conf").exists()
    assert (tmp_path / "ssh/authorized_keys").read_text() == ""


def test_who_is_let_in_by_a_new_file_does_not_find_the_keys_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path, {"identity/fleet.key": "old", "ssh/authorized_keys": ""})
    seen = []
    monkeypatch.setattr(
        "provisioning.on_board.files.write", lambda path, *_: seen.append((tmp_path / "identity/fleet.key").exists())
    )
    store(tmp_path, {"ssh/authorized_keys": KEY})
    assert seen == [False]


def test_a_faulty_file_stays_with_its_errors_and_changes_nothing(tmp_path: Path) -> None:
    boot, stored = partition(tmp_path, "[gatway]\n"), tmp_path / "stored"
    assert not take_untrusted(boot, stored)
    assert (boot / FILE).exists()
    assert "gatway: expected a known section (nearest: gateway)" in (boot / ERRORS).read_text()
    assert not stored.exists()


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    boot = partition(tmp_path, "")
    (boot / FILE).write_bytes(b"\xff\x00" * 100)
    assert not take_untrusted(boot, tmp_path / "stored")
    assert (boot / ERRORS).exists()


def test_a_file_without_an_id_gets_the_name_of_the_board(tmp_path: Path) -> None:
    boot, stored = partition(tmp_path, '[broker]\nlisten = "0.0.0.0"\n'), tmp_path / "stored"
    assert take_untrusted(boot, stored, "edgert-a1b2c3d4")
    assert 'id = "edgert-a1b2c3d4"' in (stored / "gateway.toml").read_text()
    assert (stored / "network/hostname").read_text() == "edgert-a1b2c3d4\n"
