"""The table of `edgert fleet status`: a board whose gateway is down, or that is drained, is told from others."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.cli._control import WIDTH
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
    told = lines(found)
    assert "b: gateway down" in told
    assert "c: gateway down, drained" in told
    assert not any(line.startswith("a: ") for line in told)


def test_the_status_of_a_fleet_fits_a_terminal_and_says_whose_keys_differ() -> None:
    """It was 108 columns wide."""
    members = [member(f"greenhouse-{n}", True, True) for n in range(3)]
    for n, one in enumerate(members):
        one |= {"since_s": 93_000.0, "measured_ms": 12.345 if n else None, "estimated_ms": 200.5}
        one["address"] = ["192.168.100.100", 17_946]
        one["board"] |= {"cores": 4, "speed": 35.4, "keys": ["0a1b2c3d"] if n else ["4e5f6a7b", "0a1b2c3d"]}
        one["load"] = {"load": 12.5}
    found = {
        "fleet": "t", "gateway": "a", "members": members, "health": 0, "counters": {"drops": {"replayed": 12}},
        "local_gateway": {"connected": False, "error": "nothing listens on /run/edgert/control.sock, or it is slow"},
        "coordination": {"boards": list("abcde"), "reached": ["a"], "majority": False, "long_gone": ["d", "e"]},
    }  # fmt: skip
    told = lines(found)
    assert max(map(len, told)) <= WIDTH
    assert "keys 0a1b2c3d: greenhouse-1, greenhouse-2" in told
    assert any(line.endswith("~200 ms") for line in told)
    members[0]["board"]["keys"] = ["0a1b2c3d"]
    assert "keys 0a1b2c3d: all boards" in lines(found)


@pytest.mark.parametrize("gone", [[], ["b"]])
def test_the_smaller_side_is_told_how_a_board_is_forgotten_once_it_can_be(gone: list[str]) -> None:
    """Without `--force` the agent refuses it there. It was said after seconds, of a board that restarted."""
    found = {
        "fleet": "t", "gateway": "a", "members": [], "health": 0, "counters": {"drops": {}},
        "local_gateway": {"connected": True, "error": ""},
        "coordination": {"boards": ["a", "b"], "reached": ["a"], "majority": False, "long_gone": gone},
    }  # fmt: skip
    told = lines(found)
    assert "this board reaches 1 of the fleet's 2 boards: it changes no flow." in told
    assert ("if b is gone for good: edgert fleet forget b --force" in told) is bool(gone)


@pytest.mark.parametrize("told", [{}, {"counted": "the fleet still counts b"}])
def test_a_board_that_left_and_is_still_counted_is_told_so(
    told: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "ask_fleet", lambda *_: {"left": True, **told})
    assert main(["fleet", "leave"]) == 0
    still = ", but the fleet still counts b" if told else ""
    assert capsys.readouterr().out == f"the agent has left the fleet{still}\n"
