"""Offers of the most disturbed instance, and the choice of the best other board (TPDS 2017, 4.2).

Every board decides by itself: it offers one instance, looks at the rings that the others gossip, and picks; the other
board admits or refuses by its own state. Against moves to and fro stand a threshold on the gain, several evaluations in
a row, a cool-down of both boards, a budget of moves in an hour, a pause for a refused instance, a stay for one that
moved, and the peaks of the last half hour: the other board must have needed less, with the instance added, than this
one, by half of what the instance needs. So every move lowers the sum over boards of the n-th power of these peaks, and
moves come to an end under a load that repeats within half an hour. Under one that repeats more slowly the budget
bounds them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Final, NamedTuple

from agent.interference.peaks import Load, Peaks
from agent.interference.score import Crowd, Footprint

THRESHOLDS: Final = ((0.3, 0.02), (0.05, 0.05), (0.0, 0.1))
"""(spread at least, least gain ΔI), a step function (section 4.2.1): where boards differ, a small gain is enough; where
they are even, only a great one pays. 5 % is the paper's default."""


HOUR_S: Final = 3_600.0

WORTH: Final = 0.5
"""A move lowers the greater of the two boards' peaks by at least this part of the instance's load, unless a board is
over its room. 0 moves instances to and fro for as little as the errors of predictions; from 1 on the boards would not
change places, and a board of a few large instances would give none away."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When a board offers and moves. Times in seconds."""

    crowded: float = 0.7
    """Part of the room that the board is predicted to need before it offers anything; 0: it always offers."""
    full: float = 1.0
    """Part of the room that a board which takes an instance needs at most, the instance included."""
    warm_s: float = 600.0
    """Time from the first evaluation in which a board offers only if it is predicted to be over full: it has seen too
    little of its load to tell a wave from a level."""
    in_a_row: int = 3
    """Evaluations in a row in which a board is crowded before it offers the instance that was the most disturbed one in
    all of them together. The costs of rows are measured with noise: in each of them another instance may lead."""
    cool_down_s: float = 15.0
    """Time after a move in which neither board takes part in another; predictions settle in it, and evaluations are
    counted. It is the limit on the rate of moves of a board that is over its room."""
    moves: int = 3
    """Moves, given and taken, in an hour. After these a board takes part in no other before an hour has passed since
    the first of them. Urgent moves, of a board that is over its room, count and are not limited."""
    urgent_each: int = 2
    """Urgent moves in an hour that allow one that is not: a board that came below its room by many goes on until it
    is as free as the others."""
    refused_s: float = 120.0
    """Time for which a refused instance is not offered again."""
    stay_s: float = 1_800.0
    """Time for which an instance that moved stays where it is."""


class Candidate(NamedTuple):
    """Another board, as its gossip shows it."""

    gateway: str
    crowd: Crowd
    high: Load
    """The board's peaks of the last half hour."""
    cost: float = 0.0
    """The change of the placement's score by the move; the interference score there counts 2 to this power."""
    spent: bool = False
    """True if the board has made its moves of the hour."""


class Move(NamedTuple):
    """A decision, with the figures behind it."""

    instance: str
    to: str
    here: float
    """I_c: interference score on the board that it is on."""
    there: float
    """I_n: interference score on the other board."""
    least: float
    """Gain that was asked for."""

    @property
    def gain(self) -> float:
        """ΔI, as a part of I_c."""
        return (self.here - self.there) / self.here if self.here > 0 else 0.0

    @property
    def reason(self) -> str:
        """A sentence."""
        return (
            f"{self.instance} moves to {self.to}: interference {self.here:.3g} here, {self.there:.3g} there,"
            f" {self.gain:.0%} less where {self.least:.0%} is enough"
        )


def threshold(scores: Sequence[float]) -> float:
    """Least gain for a move. `scores`: of the offered instance on every board, its own included."""
    mean = fmean(scores) if scores else 0.0
    spread = pstdev(scores) / mean if mean > 0 else 0.0
    return next(least for at_least, least in THRESHOLDS if spread >= at_least)


@dataclass(slots=True)
class Exchange:
    """One board's side: what it must remember between evaluations. `now`: seconds on a monotonic clock."""

    rules: Rules = field(default_factory=Rules)
    peaks: Peaks = field(default_factory=Peaks)
    since: float = float("inf")
    """When the first evaluation was."""
    cool_until: float = float("-inf")
    left_alone: dict[str, float] = field(default_factory=dict)
    """Operator copy -> until when it is not offered: its instance was refused, or moved. Instances change their names
    with what is fused with them."""
    crowded_scores: deque[Mapping[str, float]] = field(default_factory=deque)
    """Scores by instance, in the last evaluations in a row in which the board was crowded."""
    moved: deque[tuple[float, bool]] = field(default_factory=deque)
    """When this board gave or took an instance within the hour, and whether that was urgent."""

    def spent(self, now: float) -> bool:
        """True if the board has made its moves of the hour."""
        while self.moved and self.moved[0][0] <= now - HOUR_S:
            self.moved.popleft()
        urgent = sum(urgent for _, urgent in self.moved)
        return len(self.moved) >= max(self.rules.moves, urgent + urgent // self.rules.urgent_each)

    @property
    def urgent(self) -> bool:
        """True if the board was over its room within the last half hour, with the instances that it has now."""
        return self.peaks.load.most > self.rules.full

    def cooling(self, now: float) -> bool:
        """True if the board may neither offer nor take an instance."""
        return now < self.cool_until

    def free(self, copies: Iterable[str], now: float) -> bool:
        """False while an instance of these operator copies is left alone."""
        return all(self.left_alone.get(copy, now) <= now for copy in copies)

    def crowded(self, crowd: Crowd, now: float) -> bool:
        """True if the board needs so much that it may offer an instance; else no footprint need be made."""
        warm = now - self.since >= self.rules.warm_s
        return crowd.load.most >= (self.rules.crowded if warm else self.rules.full)

    def offer(self, crowd: Crowd, instances: Mapping[str, Footprint], now: float) -> str | None:
        """The instance to move away: the most disturbed one of the last evaluations together, if the board was crowded
        in all of them. `instances`: those on this board that may move and are `free`."""
        self.since = min(self.since, now)
        self.left_alone = {copy: until for copy, until in self.left_alone.items() if until > now}
        if not instances or not self.crowded(crowd, now):
            self.crowded_scores.clear()
            return None
        self.crowded_scores.append({name: crowd.within(footprint) for name, footprint in instances.items()})
        while len(self.crowded_scores) > self.rules.in_a_row:
            self.crowded_scores.popleft()
        may = not self.cooling(now) and (self.urgent or not self.spent(now))
        if len(self.crowded_scores) < self.rules.in_a_row or not may:
            return None
        steady = set(instances).intersection(*self.crowded_scores)
        sums = {name: sum(scores[name] for scores in self.crowded_scores) for name in sorted(steady)}
        return max(sums, key=sums.__getitem__, default=None)

    def choose(self, instance: str, footprint: Footprint, crowd: Crowd, others: Sequence[Candidate]) -> Move | None:
        """The best move of an offered instance, if it gains enough. `others`: boards that may run it and do not cool
        down. None is a refusal: tell it to `refused`."""
        here, most = crowd.within(footprint), self.most_there(footprint, crowd)
        scores = {other.gateway: other.crowd.joined(footprint) for other in others}
        costs = {
            other.gateway: 2.0**other.cost
            for other in others
            if self.bearable(other.high.plus(other.crowd.share(footprint.ring)), most)
            and (self.urgent or not other.spent)
        }
        if not costs:
            return None
        best = min(costs, key=lambda gateway: (scores[gateway] * costs[gateway], gateway))
        least = threshold([here, *scores.values()])
        move = Move(instance, best, here, scores[best] * costs[best], least)
        return move if move.gain > least else None

    def why_not(self, footprint: Footprint, crowd: Crowd, other: Candidate) -> str:
        """Says why `choose` does not take this board."""
        high, share = other.high.most, other.crowd.share(footprint.ring)
        needs, most = other.high.plus(share).most, self.most_there(footprint, crowd)
        lately = f"{other.gateway} needed up to {high:.0%} of its room in the last half hour, with it {needs:.0%}"
        if needs > self.rules.full:
            return lately
        if needs >= most:
            return f"{lately}, where less than {most:.0%} is worth a move"
        if other.spent and not self.urgent:
            return f"{other.gateway} has made its {self.rules.moves} moves of the hour"
        return f"{other.gateway} would be disturbed by it about as much"

    def most_there(self, footprint: Footprint, crowd: Crowd) -> float:
        """The part of its room below which another board has to stay, the instance included, for a move to be worth
        it."""
        high = self.peaks.load.most
        return high if self.urgent else high - WORTH * crowd.share(footprint.ring).most

    def bearable(self, there: Load, most: float) -> bool:
        """True if a board that will need `there` can take an instance of one that allows it `most`."""
        return there.most <= self.rules.full and there.most < most

    def admits(self, footprint: Footprint, crowd: Crowd, most: float, now: float, urgent: bool = False) -> bool:
        """True if this board takes an instance that another offers, by its own newest state. `most`: the other one's
        `most_there`; `urgent`: the move is."""
        may = not self.cooling(now) and (urgent or not self.spent(now))
        return may and self.bearable(self.peaks.load.plus(crowd.share(footprint.ring)), most)

    def refused(self, copies: Iterable[str], now: float) -> None:
        """No board takes the instance of these operator copies, or the one chosen did not admit it: a signal to add
        capacity, or to shed."""
        self.left_alone |= dict.fromkeys(copies, now + self.rules.refused_s)
        self.crowded_scores.clear()

    def gave(self, load: Load, now: float) -> None:
        """This board gave an instance away that needed `load` of its room."""
        urgent = self.urgent
        self.peaks.left(load)
        self._cool_down(now, urgent)

    def took(self, copies: Iterable[str], load: Load, now: float, urgent: bool = False) -> None:
        """This board took an instance of these operator copies."""
        self.peaks.arrived(load)
        self.left_alone |= dict.fromkeys(copies, now + self.rules.stay_s)
        self._cool_down(now, urgent)

    def missed(self, load: Load, taken: tuple[float, bool]) -> None:
        """An instance that this board took did not come. `taken`: when, and whether that was urgent."""
        self.peaks.left(load)
        if taken in self.moved:
            self.moved.remove(taken)

    def _cool_down(self, now: float, urgent: bool) -> None:
        self.moved.append((now, urgent))
        self.cool_until = now + self.rules.cool_down_s
        self.crowded_scores.clear()
