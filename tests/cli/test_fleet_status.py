"""The table of `edgert fleet status`: a board whose gateway is down, or that is drained, is told from others."""

from __future__ import annotations

from typing import Any

from edgert.cli.fleet.verb import lines


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
