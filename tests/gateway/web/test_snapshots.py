"""Answers made of a status are shared by all readers, and cost a bounded part of the gateway's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gateway.web.server import WebServer
from gateway.web.snapshots import FRESH_S, LONGEST_S, MOST_PART, Snapshots
from tests.gateway.web.web_rig import get, serve
from tests.status_example import example_status


class Costs:
    """A status and an answer that take CPU time, on a clock that stands still meanwhile."""

    def __init__(self, status_s: float, answer_s: float) -> None:
        self.at_s = self.cpu_s = 0.0
        self.made = self.answered = 0
        self._status_s, self._answer_s = status_s, answer_s
        self.snapshots = Snapshots(self.status, lambda: self.at_s, lambda: self.cpu_s)

    def status(self) -> Mapping[str, Any]:
        self.made += 1
        self.cpu_s += self._status_s
        return {"number": self.made}

    def answer(self, status: Mapping[str, Any]) -> int:
        self.answered += 1
        self.cpu_s += self._answer_s
        return int(status["number"])


def test_a_status_and_its_answers_are_made_once_for_all_readers() -> None:
    costs = Costs(0.001, 0.001)
    answer = costs.answer
    assert [costs.snapshots.view(answer) for _ in range(500)] == [1] * 500
    assert [costs.snapshots.view(dict) for _ in range(500)] == [{"number": 1}] * 500
    assert (costs.made, costs.answered) == (1, 1)
    costs.at_s += FRESH_S
    assert costs.snapshots.view(answer) == 2


def test_a_status_that_costs_much_is_used_for_longer() -> None:
    costs = Costs(0.12, 0.2)
    answer = costs.answer
    while costs.at_s < 60.0:
        costs.snapshots.view(answer)
        costs.at_s += 0.05
    assert 0.5 * MOST_PART <= costs.cpu_s / costs.at_s <= 1.1 * MOST_PART


def test_no_status_is_used_for_longer_than_ten_seconds() -> None:
    costs = Costs(5.0, 0.0)
    assert costs.snapshots.view(costs.answer) == 1
    costs.at_s += LONGEST_S
    assert costs.snapshots.view(costs.answer) == 2


def test_health_metrics_and_status_are_made_of_one_status(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FRESH_S", "LONGEST_S"):  # a busy machine may take long for 15 requests
        monkeypatch.setattr(f"gateway.web.snapshots.{name}", 1_000.0)
    made = 0

    def status() -> dict[str, Any]:
        nonlocal made
        made += 1
        return example_status()

    async def check(server: WebServer) -> None:
        for path in ("/healthz", "/metrics", "/api/status") * 5:
            assert (await get(server, path)).status == 200
        assert made == 1

    serve(check, status)
