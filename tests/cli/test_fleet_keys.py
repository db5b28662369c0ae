"""`edgert fleet key`: the steps of a rotation, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.membership.files import read_keys
from edgert.cli.main import main
from edgert.core.text.key_lines import MAX_KEYS


def key(file: Path, *options: str) -> int:
    return main(["fleet", "key", str(file), *options])


def test_a_rotation_whose_steps_are_typed_twice_is_not_undone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second --use let the old key seal again."""
    file = tmp_path / "fleet.key"
    assert key(file) == key(file, "--add") == 0
    old, new = read_keys(file)
    assert key(file, "--use") == 0
    assert read_keys(file) == [new, old]
    assert key(file, "--use") == 1
    assert "it is in use already, or has to be added first" in capsys.readouterr().err
    assert read_keys(file) == [new, old]
    assert key(file, "--drop") == key(file, "--drop") == 0
    assert read_keys(file) == [new]
    assert "fleet.key: 1 key; copy" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"hello\n", b"\xff\xfe\x00", b""])
@pytest.mark.parametrize("step", ["--add", "--use", "--drop"])
def test_a_file_without_keys_is_refused_and_stays(
    content: bytes, step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a text that is no key it made a file with two keys; of other bytes a traceback."""
    file = tmp_path / "fleet.key"
    file.write_bytes(content)
    assert key(file, step) == 1
    assert f"edgert: {file}" in capsys.readouterr().err
    assert file.read_bytes() == content


def test_more_keys_than_agents_read_are_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fleet.key"
    assert key(file) == 0
    while len(read_keys(file)) < MAX_KEYS:
        assert key(file, "--add") == 0
    assert key(file, "--add") == 1
    assert f"expected 1 to {MAX_KEYS} keys, got {MAX_KEYS + 1}" in capsys.readouterr().err
    assert len(read_keys(file)) == MAX_KEYS
