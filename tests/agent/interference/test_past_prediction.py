"""The load that was predicted, beside the one that came."""

from __future__ import annotations

from agent.interference.past_prediction import MOST, PastPrediction
from agent.interference.peaks import Load
from agent.interference.ring import STARTS, Ring
from agent.interference.score import Crowd, Room

ROOM = Room(2.0, 100.0)


def rising(now: float) -> Crowd:
    """One core more each hundred seconds."""
    cpu = tuple((now + start) / 100 for start in STARTS)
    return Crowd(Ring(cpu, (50.0,) * len(STARTS)), ROOM)


def test_a_prediction_is_told_when_its_time_has_come() -> None:
    predicted = PastPrediction()
    for now in range(0, 30, 5):
        predicted.observe(rising(now), Load(), float(now))
        assert predicted.before is None
    predicted.observe(rising(40.0), Load(0.3, 0.4), 40.0)
    assert predicted.now == Load(0.3, 0.4), "what was read, not what was predicted"
    assert predicted.before == Load(0.2, 0.5), "that of ten seconds, for forty"


def test_memory_is_bounded() -> None:
    predicted = PastPrediction()
    for now in range(1000):
        predicted.observe(rising(0.0), Load(), now / 100)
    assert len(predicted._waiting) == MOST
