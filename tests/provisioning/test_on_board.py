"""The file is taken from its partition once: stored, then wiped there."""

from __future__ import annotations

from pathlib import Path

from provisioning.on_board import ERRORS, FILE, take_untrusted


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
