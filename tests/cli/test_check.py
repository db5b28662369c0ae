"""`edgert check`: a good document is told, a bad one with every error."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from edgert.cli.main import main

GOOD = """
name = "city-air"
[operators.readings]
type = "mqtt_source"
topic = "city/{source}/sense"
codec = "senml"
[operators.warm]
type = "filter"
input = "readings"
where = "temperature > 20"
[operators.alarm]
type = "publish"
input = "warm"
topic = "alerts/{source}"
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    return file


def test_good_document_is_told(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(good)]) == 0
    told = "3 operators, exactly-once, checkpoint every 5 s"
    assert capsys.readouterr().out == f"{good}: flow city-air is good: {told}\n"


def test_every_error_is_told_with_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(GOOD.replace("temperature > 20", "temperature >").replace('"publish"', '"publihs"'))
    assert main(["check", str(file)]) == 1
    errors = capsys.readouterr().err
    assert f"{file}: 2 errors" in errors
    assert "operators.warm.where: expected" in errors
    assert "operators.alarm.type: expected" in errors


def test_one_bad_document_among_good_ones_is_status_1(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"name": "x"}))
    assert main(["check", str(bad), str(good)]) == 1
    told = capsys.readouterr()
    assert "flow city-air is good" in told.out
    assert str(bad) in told.err


def test_absent_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "absent.toml")]) == 1
    assert "absent.toml: expected a readable file: No such file" in capsys.readouterr().err


def test_the_schema_for_editors_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "edgert flow"
    with pytest.raises(SystemExit):
        main(["check"])
    assert "expected a FILE to check, or --schema" in capsys.readouterr().err


def test_a_document_comes_from_standard_input(
    good: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf" + good.read_bytes())))
    assert main(["check", "-"]) == 0
    assert capsys.readouterr().out.startswith("standard input: flow city-air is good")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"name = 1")))
    assert main(["explain", "-"]) == 1
    assert capsys.readouterr().err.startswith("edgert: standard input: ")


def test_findings_are_json_objects_a_line_each(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(GOOD.replace('"publish"', '"publihs"'))
    assert main(["check", "--json", str(good), str(bad), str(tmp_path / "nowhere.toml")]) == 1
    shown = capsys.readouterr()
    well, ill, nowhere = map(json.loads, shown.out.splitlines())
    assert well == {"file": str(good), "good": True, "flow": "city-air", "errors": [], "notes": []}
    assert (ill["good"], [error["path"] for error in ill["errors"]]) == (False, ["operators.alarm.type"])
    assert "No such file" in nowhere["errors"][0]["got"]
    assert shown.err == ""
