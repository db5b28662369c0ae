"""Descriptions of laboratories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.simulation.described.description import CENTRAL, parse, read
from agent.simulation.described.ways import DescriptionError, Way

HERE = Path(__file__).parents[2] / "lab"
TWO: dict[str, Any] = {"boards": [{"name": "a"}, {"name": "b"}]}


def test_the_eleven_boards_are_the_papers() -> None:
    found = read(HERE / "eleven.toml")
    limits = sorted(((board.cores, board.memory_mb) for board in found.boards), reverse=True)
    assert limits == [(1.5, 2048), *[(1.0, 1024)] * 3, *[(0.3, 768)] * 7]
    assert len(found.ways) == 12 * 11
    assert found.ways["leaf-1", "leaf-4"].delay_s == pytest.approx(0.001 + 0.004)  # both below middle-1
    assert found.ways["leaf-1", "leaf-3"].delay_s == pytest.approx(0.001 + 0.001 + 0.003 + 0.003)  # by the root


def test_three_boards_have_a_way_between_all() -> None:
    found = read(HERE / "boards.toml")
    assert found.places == [CENTRAL, "g1", "g2", "g3"]
    assert set(found.ways.values()) == {Way(delay_s=0.002)}


def test_ways_go_along_the_links_with_the_least_delay() -> None:
    found = parse({**TWO, "links": [
        {"between": ["a", "b"], "delay_ms": 9},
        {"between": ["a", CENTRAL], "delay_ms": 2, "loss": 0.5, "mbit_s": 8, "queue_kb": 10},
        {"between": [CENTRAL, "b"], "delay_ms": 3, "loss": 0.5, "jitter_ms": 1, "mbit_s": 80},
    ]})  # fmt: skip
    along = found.ways["a", "b"]
    assert along.delay_s == pytest.approx(0.005)
    assert (along.loss, along.jitter_s, along.bytes_per_s, along.queue_bytes) == (0.75, 0.001, 1e6, 10_240)
    assert found.ways["b", "a"].delay_s == along.delay_s


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "boards: expected 1 to 200"),
        ({"boards": [{"name": "a"}, {"name": "a"}]}, "different names"),
        ({"boards": [{"name": CENTRAL}]}, "none of them central"),
        ({"boards": [{"name": "a/b"}]}, r"boards\[0\].name: expected a gateway's name, got 'a/b'"),
        ({"boards": [{"name": "a", "core": 1}]}, r"boards\[0\]: expected agent, cores.*got core"),
        ({"boards": [{"name": "a", "cores": -1}]}, r"boards\[0\].cores: expected a number, not negative, got -1"),
        ({"boards": [{"name": "a", "settings": {"pool": 1}}]}, r"boards\[0\].settings: expected tables"),
        (TWO, "expected a path from central to a"),
        ({**TWO, "links": [{"between": ["a", "c"]}]}, r"links\[0\].between: expected two of central, a, b"),
        ({**TWO, "otherwise": {"loss": 2}}, "otherwise.loss: expected 0 to 1, got 2"),
        ({**TWO, "otherwise": []}, "otherwise: expected a table"),
        ({**TWO, "agents": 1}, "agents: expected true or false, got 1"),
        ({**TWO, "more": 1}, "the file: expected agents, boards.*got more"),
    ],
)
def test_an_error_names_the_entry_and_what_was_expected(document: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        parse(document)


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("boards = ")
    with pytest.raises(DescriptionError, match=r"x\.toml: "):
        read(path)
