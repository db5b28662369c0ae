"""The table of `edgert fleet status`: a board whose gateway is down, or that is drained, is told from others."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.cli.fleet import verb
from edgert.cli.fleet.verb import lines
from edgert.cli.main import main


def member(name: str, gateway: bool, drained: bool) -> dict[str, Any]:
    return {
        "gateway": name, "state": "alive", "self": False, "since_s": 1.0, "address": ["10.0.0.1", 7946],
        "board": {"drained": drained}, "load": {}, "flows": {"gateway": gateway}, "coordinate": [],
        "estimated_ms": None, "measured_ms": None,
    }  # fmt: skip


def test_boards_whose_gateway_is_down_and_drained_boards_are_named() -> None:
    members = [member("a", True, False), member("b", False, False), member("c", False, True)]
    found = {
        "fleet": "t", "gateway": "a", "members": members, "health": 0, "counters": {"drops": {}},
        "local_gateway": {"connected": True, "error": ""},
    }  # fmt: skip
    told = {line[:1]: line for line in lines(found)[2:] if line[:1] in "abc"}
    assert "gateway down" not in told["a"]
    assert "alive, gateway down " in told["b"]
    assert "alive, gateway down, drained " in told["c"]


def test_a_board_of_the_smaller_side_is_told_how_one_that_is_gone_is_forgotten_there() -> None:
    """Without `--force` the agent refuses it there."""
    found = {
        "fleet": "t", "gateway": "a", "members": [], "health": 0, "counters": {"drops": {}},
        "local_gateway": {"connected": True, "error": ""},
        "coordination": {"boards": ["a", "b"], "reached": ["a"], "majority": False},
    }  # fmt: skip
    assert lines(found)[1].endswith("gone for good: edgert fleet forget BOARD --force")


@pytest.mark.parametrize("told", [{}, {"counted": "the fleet still counts b"}])
def test_a_board_that_left_and_is_still_counted_is_told_so(
    told: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "ask_fleet", lambda *_: {"left": True, **told})
    assert main(["fleet", "leave"]) == 0
    still = ", but the fleet still counts b" if told else ""
    assert capsys.readouterr().out == f"the agent has left the fleet{still}\n"
