"""Steps of a probe, and which answers measure a round-trip time."""

from __future__ import annotations

import pytest

from agent.membership.parameters import Parameters
from agent.membership.probing import Prober, ProbeStep

PARAMETERS = Parameters(probe_interval_s=1.0, probe_timeout_s=0.4, probe_intervals=4.0)


def steps(prober: Prober, until: float) -> list[tuple[float, ProbeStep]]:
    """When each step was due, called as an owner calls it."""
    found = []
    while (now := prober.next_deadline()) <= until:
        found += [(round(now, 3), step) for step, _ in prober.due(now)]
    return found


def test_a_probe_without_an_answer_repeats_asks_others_doubts_and_ends() -> None:
    prober = Prober(PARAMETERS, 0)
    prober.probe("b", 10.0, 1)
    expected = [(10.4, ProbeStep.REPEAT), (10.8, ProbeStep.ASK), (11.0, ProbeStep.DOUBT), (14.0, ProbeStep.END)]
    assert steps(prober, 60.0) == expected


@pytest.mark.parametrize(("multiplier", "patience", "ends"), [(1, 5, 18.0), (9, 1, 22.0)])
def test_health_and_patience_put_the_end_off_by_seconds_not_by_minutes(
    multiplier: int, patience: int, ends: float
) -> None:
    prober = Prober(PARAMETERS, 0)
    prober.probe("b", 10.0, multiplier, patience)
    assert steps(prober, 60.0)[-1] == (ends, ProbeStep.END)


def test_time_in_which_the_agent_did_not_run_counts_for_no_step() -> None:
    prober = Prober(PARAMETERS, 0)
    prober.probe("b", 10.0, 1)
    prober.put_off(5.0)
    assert steps(prober, 60.0)[0] == (15.4, ProbeStep.REPEAT)


def test_an_answer_to_one_of_two_pings_measures_nothing() -> None:
    """It may be the answer to either."""
    prober = Prober(PARAMETERS, 0)
    first, second = (prober.probe(name, 10.0, 1).sequence for name in "bc")
    once = prober.acknowledge(first, "b", 10.25)
    assert once is not None
    assert once.rtt_s == 0.25
    prober.due(10.5)
    twice = prober.acknowledge(second, "c", 10.75)
    assert twice is not None
    assert (twice.rtt_s, twice.probed) == (None, True)


def test_a_probe_doubts_only_after_others_were_asked_and_an_interval_is_over() -> None:
    prober = Prober(PARAMETERS, 0)
    prober.probe("b", 10.0, 1)
    prober.due(10.9)
    assert not prober.doubts("b")
    prober.due(11.0)
    assert prober.doubts("b")
