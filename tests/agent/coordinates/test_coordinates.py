"""Coordinates against a known truth: points in a space, whose distances are the round-trip times."""

from __future__ import annotations

import math
import statistics
from random import Random

import pytest

from agent.coordinates.algorithm import Algorithm, Observation
from agent.coordinates.filter import ApplicationCoordinate, MedianFilter
from agent.coordinates.registry import NAMES, make
from agent.coordinates.remembering import LENGTH, MOST_PEERS, MOST_ROUNDS, Remembering
from agent.coordinates.rounds import RoundParameters, Rounds


def relative_errors(algorithms: list[Algorithm], truth: list[list[float]]) -> list[float]:
    found = []
    for a in range(len(algorithms)):
        for b in range(a):
            estimate = algorithms[a].estimate_ms(algorithms[a].coordinate, algorithms[b].coordinate)
            found.append(abs(estimate - truth[a][b]) / truth[a][b])
    return found


@pytest.mark.parametrize(
    ("name", "size_ms", "bound"),
    [
        ("remembering", 100.0, 0.01),
        ("remembering", 0.5, 0.01),
        ("remembering", 1_000.0, 0.01),
        ("spring", 100.0, 0.05),
        ("spring", 0.5, 0.05),
        ("spring", 1_000.0, 0.05),
        ("vivaldi", 100.0, 0.12),
    ],
)
def test_distances_of_points_in_a_space_are_learned(name: str, size_ms: float, bound: float) -> None:
    random = Random(11)
    print("seed 11")
    points = [[random.uniform(0, size_ms) for _ in range(3)] for _ in range(40)]
    truth = [[math.dist(a, b) for b in points] for a in points]
    algorithms = [make(name, Random(n)) for n in range(40)]
    for _ in range(25):
        for own in range(40):
            peers = random.sample([n for n in range(40) if n != own], 16)
            algorithms[own].update([Observation(str(p), algorithms[p].coordinate, truth[own][p]) for p in peers])
    assert statistics.median(relative_errors(algorithms, truth)) < bound


def test_boards_behind_slow_links_have_heights() -> None:
    """A star: what is between two boards is the sum of their links, which no distances of points are."""
    links = [1.0 + n for n in range(12)]
    truth = [[a + b for b in links] for a in links]
    found = learned("remembering", truth, rounds=40)
    assert statistics.median(relative_errors(found, truth)) < 0.05
    heights = [board.coordinate[-1] for board in found]
    assert statistics.median(heights[6:]) > statistics.median(heights[:6])


def learned(name: str, truth: list[list[float]], rounds: int) -> list[Algorithm]:
    """Each round measures four peers of each board."""
    print("seed 11")
    random, size = Random(11), len(truth)
    algorithms = [make(name, Random(n)) for n in range(size)]
    for _ in range(rounds):
        for own in range(size):
            peers = random.sample([n for n in range(size) if n != own], 4)
            algorithms[own].update([Observation(str(p), algorithms[p].coordinate, truth[own][p]) for p in peers])
    return algorithms


def test_a_remembering_point_comes_to_rest_although_each_round_measures_others() -> None:
    random = Random(11)
    points = [[random.uniform(0, 100.0) for _ in range(3)] for _ in range(20)]
    truth = [[math.dist(a, b) for b in points] for a in points]
    before, after = (
        [board.coordinate for board in learned("remembering", truth, rounds)] for rounds in (40, 41)
    )  # the same rounds, and one more
    assert max(math.dist(a, b) for a, b in zip(before, after, strict=True)) < 1.0


def test_memory_is_bounded_in_peers_and_in_rounds() -> None:
    algorithm = Remembering(Random(1))
    at = (1.0,) * LENGTH
    for n in range(MOST_PEERS + 5):
        algorithm.update([Observation(f"b{n}", at, 5.0)])
    assert len(algorithm._known) == MOST_ROUNDS
    algorithm.update([Observation(f"b{n}", at, 5.0) for n in range(2 * MOST_PEERS)])
    assert list(algorithm._known) == [f"b{n}" for n in range(MOST_PEERS, 2 * MOST_PEERS)]


@pytest.mark.parametrize("name", NAMES)
def test_impossible_observations_change_nothing(name: str) -> None:
    algorithm = make(name, Random(1))
    before = algorithm.coordinate
    length = len(before)
    bad = [
        Observation("p", (1.0,) * (length + 1), 5.0),
        Observation("p", (), 5.0),
        Observation("p", (1.0,) * length, 0.0),
        Observation("p", (1.0,) * length, 1e9),
    ]
    algorithm.update(bad)
    assert algorithm.coordinate == before
    assert algorithm.estimate_ms(before, ()) == math.inf


@pytest.mark.parametrize("name", NAMES)
def test_coordinates_stay_finite_whatever_peers_say(name: str) -> None:
    random = Random(5)
    algorithm = make(name, random)
    length = len(algorithm.coordinate)
    for _ in range(300):
        peers = [
            Observation(
                "p",
                tuple(random.choice((0.0, 1e9, -1e9, random.gauss(0, 50))) for _ in range(length)),
                random.choice((1e-9, 60_000.0, 20.0)),
            )
            for _ in range(4)
        ]
        algorithm.update(peers)
        assert all(math.isfinite(number) for number in algorithm.coordinate)


def test_median_filter_passes_no_outlier() -> None:
    filtered = MedianFilter()
    for rtt in (10.0, 11.0, 900.0, 10.5, 10.2):
        filtered.add("p", rtt)
    assert filtered.get("p") == 10.5
    assert filtered.get("unknown") is None


def test_application_coordinate_changes_only_when_the_move_is_significant() -> None:
    spring, application = make("spring", Random(1)), ApplicationCoordinate()
    assert application.follow((0.0, 0.0, 0.0), spring, 10.0)
    assert not application.follow((1.0, 0.0, 0.0), spring, 10.0)
    assert application.value == (0.0, 0.0, 0.0)
    assert application.follow((2.0, 0.0, 0.0), spring, 10.0)
    assert application.changes == 2


def test_round_pings_the_nearest_and_random_others() -> None:
    rounds = Rounds(make("spring", Random(1)), RoundParameters(near=2, far=2, pings=1), Random(3), 0.0)
    members = [f"b{n}" for n in range(10)]
    now = rounds.next_due
    assert len(rounds.due(now, members)) == 4
    for number, name in enumerate(members):
        rounds.measured(name, 0.001 * (number + 1), (1.0 * number, 0.0, 0.0))
    assert rounds.due(now, members) == []
    now = rounds.next_due
    peers = rounds.due(now, members)
    assert peers[:2] == ["b0", "b1"]
    assert len(set(peers)) == 4
    assert rounds.rounds == 1
    assert 7.5 <= rounds.next_due - now <= 12.5
