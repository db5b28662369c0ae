"""How the kernel is told to run programs of a foreign board."""

from pathlib import Path

from images import debian


def test_the_emulator_has_the_name_by_which_mmdebstrap_looks_for_it(tmp_path: Path) -> None:
    emulator = tmp_path / "qemu" / "usr" / "bin" / "qemu-aarch64"
    emulator.parent.mkdir(parents=True)
    emulator.touch()
    (tmp_path / "register").touch()
    debian.emulate_arm64(tmp_path, tmp_path)
    entry = (tmp_path / "register").read_text()
    assert entry.startswith(":qemu-aarch64:M::")
    assert entry.endswith(f":{emulator}:F")


def test_an_emulator_that_is_registered_stays(tmp_path: Path) -> None:
    emulator = tmp_path / "qemu" / "usr" / "bin" / "qemu-aarch64"
    (tmp_path / "register").touch()
    (tmp_path / "qemu-aarch64").write_text(f"enabled\ninterpreter {emulator}\nflags: F\n")
    debian.emulate_arm64(tmp_path, tmp_path)
    assert (tmp_path / "register").read_text() == ""
