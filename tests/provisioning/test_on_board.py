"""The file is taken from its partition once: stored, then wiped there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from provisioning.document import files_untrusted
from provisioning.on_board import ERRORS, FILE, LIMIT_BYTES, TAKEN, store, take_untrusted
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
    store(tmp_path, files_untrusted("[broker]\nport = 1883\n"))
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


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[wifi]\nname = "Büro"\npassword = "12345678"\n'.encode("cp1252"), "line 2: expected the encoding UTF-8"),
        ('[gateway]\nid = "g7"\n'.encode("utf-16"), "got UTF-16"),
        ('[gateway]\nid = "g7"\n'.encode("utf-16-be"), "got UTF-16"),
        (b"\xff\x00" * 100, "line 1: expected the encoding UTF-8"),
        (b"", "expected a setting at least"),
        (b"\0" * 300, "got zero bytes only"),
        (b"# [gateway]\r\n# id = 'g7'\r\n", "expected a setting at least"),
        (b"[gateway]\n[broker]\n", "expected a setting at least"),
        (b"[gateway]\nid = 'g7'\n#" + b" " * LIMIT_BYTES, "expected at most 262144 bytes"),
    ],
    ids=["Windows-1252", "UTF-16", "UTF-16 without a mark", "no text", "empty", "zeros", "comments", "heads", "large"],
)
def test_a_file_that_is_not_understood_changes_nothing(tmp_path: Path, content: bytes, said: str) -> None:
    boot, stored = partition(tmp_path, ""), tmp_path / "stored"
    (boot / FILE).write_bytes(content)
    assert not take_untrusted(boot, stored)
    assert said in (boot / ERRORS).read_text()
    assert (boot / FILE).read_bytes() == content
    assert not stored.exists()


def test_an_ending_that_windows_adds_and_does_not_show_makes_no_difference(tmp_path: Path) -> None:
    boot, stored = partition(tmp_path, '[gateway]\nid = "g7"\n'), tmp_path / "stored"
    (boot / FILE).rename(boot / "Edgert.toml.txt")
    assert take_untrusted(boot, stored)
    assert 'id = "g7"' in (stored / "gateway.toml").read_text()
    assert not list(boot.iterdir())


def test_of_two_files_none_is_taken(tmp_path: Path) -> None:
    boot, stored = partition(tmp_path, '[gateway]\nid = "g7"\n'), tmp_path / "stored"
    (boot / "edgert.toml.txt").write_text('[gateway]\nid = "g8"\n')
    assert not take_untrusted(boot, stored)
    assert "expected one file, got edgert.toml and edgert.toml.txt" in (boot / ERRORS).read_text()
    assert not stored.exists()


@pytest.mark.parametrize("name", ["edgert (1).toml", "edgert.toml.toml", "edgert.txt", "edgert.toml.docx"])
def test_a_file_that_was_meant_is_named(tmp_path: Path, name: str) -> None:
    boot, stored = partition(tmp_path, '[gateway]\nid = "g7"\n'), tmp_path / "stored"
    (boot / FILE).rename(boot / name)
    assert not take_untrusted(boot, stored)
    assert f"expected the name edgert.toml, got {name}" in (boot / ERRORS).read_text()


def test_the_card_of_a_new_board_says_nothing(tmp_path: Path) -> None:
    boot = partition(tmp_path, "")
    (boot / FILE).rename(boot / "edgert.sample.toml")
    (boot / "config.txt").touch()
    (boot / "edgert-reset.txt").touch()
    assert not take_untrusted(boot, tmp_path / "stored")
    assert not (boot / ERRORS).exists()


def test_a_power_cut_amid_the_wiping_leaves_a_file_that_the_next_start_wipes(tmp_path: Path) -> None:
    boot, stored = partition(tmp_path, "the key"), tmp_path / "stored"
    (boot / FILE).rename(boot / TAKEN)
    same = boot / "same-file"
    same.hardlink_to(boot / TAKEN)
    assert not take_untrusted(boot, stored)
    assert set(same.read_bytes()) == {0}
    assert not (boot / TAKEN).exists()
    assert not (boot / ERRORS).exists()


def test_a_file_without_an_id_gets_the_name_of_the_board(tmp_path: Path) -> None:
    boot, stored = partition(tmp_path, '[broker]\nlisten = "0.0.0.0"\n'), tmp_path / "stored"
    assert take_untrusted(boot, stored, "edgert-a1b2c3d4")
    assert 'id = "edgert-a1b2c3d4"' in (stored / "gateway.toml").read_text()
    assert (stored / "network/hostname").read_text() == "edgert-a1b2c3d4\n"
