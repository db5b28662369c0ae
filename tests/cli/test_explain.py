"""`edgert explain`: the graph, the instances, and what chains are compiled to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgert.cli.main import main
from tests.cli.worlds import DOCUMENT, SPLIT


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "city-air.toml"
    made.write_text(DOCUMENT)
    return made


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """What was printed, cut into columns."""
    return [[cell for cell in line.strip().split("  ") if cell] for line in capsys.readouterr().out.splitlines()]


def test_graph_and_instances_are_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(file)]) == 0
    shown = [[cell.strip() for cell in line] for line in lines(capsys)]
    assert ["7 operators"] in shown
    assert ["readings", "mqtt_source", "→ valid", "topic = 'city/{source}/sense'"] in shown
    assert next(c for c in shown if c[:1] == ["minute"])[:3] == ["minute", "tumbling_window", "→ central, again"]
    assert ["1 instance of 5 stages"] in shown
    assert [line for line in shown if line and line[0].startswith("1.")] == [
        ["1.1", "readings", "source", "→ 1.2", "decodes humidity, temperature"],
        ["1.2", "valid+kelvin+by_place", "stateless", "→ 1.3",
         "2 operators compiled to one function; by_place costs nothing"],
        ["1.3", "minute", "stateful", "→ 1.4 (port 1), 1.5", "keyed by source (string)"],
        ["1.4", "central", "sink"],
        ["1.5", "again", "sink"],
    ]  # fmt: skip


def test_fusion_can_be_left_out(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(file), "--fusion", "chains"]) == 0
    shown = [[cell.strip() for cell in line] for line in lines(capsys)]
    physical = {line[1]: line[2:] for line in shown if line and line[0].isdigit()}
    assert physical == {
        "readings": ["source", "→ 2", "decodes humidity, temperature"],
        "valid+kelvin+by_place": ["stateless", "→ 3", "2 operators compiled to one function; by_place costs nothing"],
        "minute": ["stateful", "→ 4 (port 1), 5", "keyed by source (string)"],
        "central": ["sink"],
        "again": ["sink"],
    }
    assert main(["explain", str(file), "--fusion", "none"]) == 0
    assert ["6 instances"] in lines(capsys)


def test_code_is_shown_when_asked_for(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--code", str(file)]) == 0
    told = capsys.readouterr().out
    assert "valid+kelvin+by_place\ndef fast(rows):" in told
    assert "273.15" in told


def test_a_bad_document_is_refused_with_every_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(DOCUMENT.replace("temperature > -40", "temperature >").replace('"publish"', '"publihs"'))
    assert main(["explain", str(file)]) == 1
    errors = capsys.readouterr().err
    assert f"{file}: 2 errors" in errors


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(tmp_path / "none.toml")]) == 1
    assert "none.toml: expected a readable file" in capsys.readouterr().err


def test_copies_are_shown_in_one_line_with_how_rows_come_to_them(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(SPLIT)
    assert main(["explain", str(file), "--code"]) == 0
    told = capsys.readouterr().out
    shown = [[cell.strip() for cell in line.strip().split("  ") if cell] for line in told.splitlines()]
    assert ["8 instances"] in shown
    assert {line[1]: line[2:] for line in shown if line and line[0].isdigit() and len(line) > 1} == {
        "readings#1..2": ["source", "→ 2 gather", "decodes humidity, temperature; 2 copies, divided by topic"],
        "valid+kelvin+by_place": ["stateless", "→ 3 key (source)",
                                  "2 operators compiled to one function; by_place costs nothing"],
        "minute#1..3": ["stateful", "→ 4 (port 1) gather, 5 gather", "keyed by source (string); 3 copies"],
        "central": ["sink"],
        "again": ["sink"],
    }  # fmt: skip
    assert told.count("def fast(rows):") == 1
    assert main(["explain", str(file), "--fission", "off"]) == 0
    assert ["1 instance of 5 stages"] in lines(capsys)


@pytest.mark.parametrize("option", [["--code"], ["--fusion", "none"], ["--fission", "off"]])
def test_options_of_a_file_are_refused_with_a_running_flow(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "city-air", "--running", *option]) == 1
    assert "--code, --fusion and --fission with a FILE" in capsys.readouterr().err


def test_the_plan_is_one_json_object(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(file), "--json", "--code", "--fusion", "chains"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["flow"], told["delivery"], len(told["operators"])) == ("city-air", "exactly-once", 7)
    assert [one["name"] for one in told["instances"]] == [
        "readings", "valid+kelvin+by_place", "minute", "central", "again"
    ]  # fmt: skip
    assert told["instances"][2]["keys"] == [{"field": "source", "kind": "string"}]
    assert list(told["code"]) == ["valid+kelvin+by_place"]
