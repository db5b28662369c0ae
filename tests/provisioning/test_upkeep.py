"""Stored files that are damaged: set aside, and made anew from what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioning import on_board, upkeep
from provisioning.document import IDENTITY, files_untrusted
from provisioning.on_board import store
from tests.provisioning.keys import KEY

FILE = f"""
[gateway]
id = "g7"
[broker]
listen = "0.0.0.0"
[network]
address = "192.168.1.20/24"
[wifi]
name = "a"
password = "12345678"
[ssh]
keys = ["{KEY}"]
"""
NAMES = ["gateway.toml", "agent.toml", "mosquitto/listener.conf", "mosquitto/sensors.acl", "network/lan.network",
         "network/hostname", "network/wifi.conf"]  # fmt: skip


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a provisioned board."""
    (tmp_path / "unprovisioned.toml").write_text('[broker]\nlisten = ""\n')
    stored = tmp_path / "stored"
    monkeypatch.setattr(on_board, "STORED", stored)
    monkeypatch.setattr(on_board, "UNTOLD", tmp_path / "unprovisioned.toml")
    store(stored, files_untrusted(FILE))
    return stored


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"\xff\x00 x", None], ids=["empty", "zeros", "bytes", "missing"])
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_made_anew_from_its_copy(
    board: Path, name: str, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (board / name).read_bytes()
    (board / name).unlink() if content is None else (board / name).write_bytes(content)
    on_board._mend()
    assert (board / name).read_bytes() == before
    assert f"{name} was damaged or missing, and is made anew from its copy" in capsys.readouterr().err
    if content is not None:
        assert (board / "damaged" / name).read_bytes() == content
    on_board._mend()
    assert not capsys.readouterr().err


def test_without_a_copy_the_board_keeps_its_name_and_is_closed(board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gateway.toml", "kept/gateway.toml", "mosquitto/listener.conf", "kept/mosquitto/listener.conf"):
        (board / name).write_bytes(b"\0" * 40)
    on_board._mend()
    assert 'id = "g7"' in (board / "gateway.toml").read_text()
    assert (board / "mosquitto/listener.conf").read_text() == "listener 1883 127.0.0.1\nallow_anonymous true\n"
    assert "from the defaults" in capsys.readouterr().err


def test_what_is_changed_by_hand_stays_and_is_kept(board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = (board / "gateway.toml").read_text() + '\n[log]\nlevel = "debug"\n'
    (board / "gateway.toml").write_text(changed)
    on_board._mend()
    (board / "gateway.toml").write_text("")
    on_board._mend()
    assert (board / "gateway.toml").read_text() == changed
    assert capsys.readouterr().err.count("edgert-provision") == 1


def test_settings_of_a_newer_system_are_not_replaced_by_an_older_one(board: Path) -> None:
    newer = '[gateway]\nid = "g7"\n[of_the_next_version]\na = 1\n'
    for name in ("gateway.toml", "kept/gateway.toml"):
        (board / name).write_text(newer)
    on_board._mend()
    assert (board / "gateway.toml").read_text() == newer


def test_a_key_for_ssh_that_was_removed_by_hand_does_not_come_back(board: Path) -> None:
    (board / "ssh/authorized_keys").write_text("")
    on_board._mend()
    assert (board / "ssh/authorized_keys").read_text() == ""


def test_certificate_and_key_are_restored_together(board: Path) -> None:
    for name, text in zip(sorted(upkeep.PAIR), ("old", "old"), strict=True):
        (board / upkeep.KEPT / name).parent.mkdir(exist_ok=True)
        (board / upkeep.KEPT / name).write_text(text)
        (board / name).parent.mkdir(exist_ok=True)
        (board / name).write_text("new")
    assert not upkeep._sound(IDENTITY["key"], "new", "old")
    said = upkeep.mend(board, {}, lambda name, text: None)
    assert sorted(line.split(" ", 1)[0] for line in said) == sorted(upkeep.PAIR)


def test_what_a_later_file_leaves_out_is_not_kept(board: Path) -> None:
    store(board, files_untrusted('[gateway]\nid = "g8"\n'))
    assert not (board / "kept/network/wifi.conf").exists()
    on_board._mend()
    assert not (board / "network/wifi.conf").exists()


def test_a_card_that_takes_nothing_keeps_no_service_from_starting(
    board: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(on_board, "_mend", full)
    assert on_board._or_say("it stays", on_board._mend) is False
    assert "it stays: [Errno 28] No space left on device" in capsys.readouterr().err
