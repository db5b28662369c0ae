"""The truth about a simulated flow: owners, outages, deaths."""

from __future__ import annotations

from agent.simulation.watch import PartSeen, Watch


class World:
    def __init__(self) -> None:
        self.now, self.cut = 0.0, False
        self.watch = Watch(lambda: self.now, lambda a, b: not self.cut)

    def look(self, at: float, parts: dict[str, PartSeen], living: str = "ab") -> None:
        self.now = at
        self.watch.look(parts, set(living))


def part(plan: int = 1, running: bool = True, **on: str) -> PartSeen:
    return PartSeen(plan, running, on)


BOTH = {"a": part(x="a", y="b"), "b": part(x="a", y="b")}


def test_an_operator_that_runs_by_two_plans_on_two_boards_is_noticed_once() -> None:
    world = World()
    for _ in range(2):
        world.look(1.0, {"a": part(1, x="a"), "b": part(2, x="b")})
    assert world.watch.violations == ["TWO OWNERS: x runs on a by plan 1 and on b by plan 2"]


def test_a_part_that_stands_still_owns_nothing() -> None:
    world = World()
    world.look(1.0, {"a": part(1, running=False, x="a"), "b": part(2, x="b")})
    assert world.watch.violations == []


def test_each_outage_has_its_time_and_its_reason() -> None:
    world = World()
    world.look(0.0, BOTH)
    world.look(10.0, {"a": BOTH["a"]}, living="a")
    world.look(15.0, BOTH)
    world.cut = True
    world.look(20.0, BOTH)
    world.cut = False
    world.look(22.0, {"a": part(running=False, x="a", y="b"), "b": BOTH["b"]})
    world.look(22.5, BOTH)
    world.now = 30.0
    world.watch.end()
    assert [(one.began_s, one.seconds, one.state, one.why) for one in world.watch.outages] == [
        (10.0, 5.0, "lacks a board", "b is down"),
        (20.0, 2.0, "is cut", "a and b do not hear each other"),
        (22.0, 0.5, "changes its plan", "its plan is being changed"),
    ]


def test_an_outage_that_lasts_counts_until_the_end() -> None:
    world = World()
    world.look(0.0, BOTH)
    world.look(10.0, {}, living="")
    world.now = 30.0
    world.watch.end()
    assert [one.seconds for one in world.watch.outages] == [20.0]


def test_a_change_of_plan_counts_with_the_operators_that_it_moves() -> None:
    world = World()
    world.look(0.0, BOTH)
    world.look(1.0, {"a": part(2, x="a", y="a")})
    assert (world.watch.changes, world.watch.moves) == (1, 1)
    assert world.watch.lines[-1].text == "plan 2: y from b to a"


def test_a_death_is_known_when_all_that_live_hold_it_and_a_false_one_is_counted() -> None:
    world = World()
    world.look(0.0, BOTH)
    world.watch.died("b")
    for at, observer in ((6.0, "a"), (8.0, "c")):
        world.now = at
        world.watch.holds_for_dead(observer, "b", {"a", "c"})
    assert world.watch.deaths_known_s == [8.0]
    world.watch.holds_for_dead("a", "c", {"a", "c"})
    assert world.watch.false_deaths == 1


def test_a_new_coordinator_is_told_once_when_it_is_chosen_and_when_all_agree() -> None:
    world = World()
    world.look(0.0, BOTH)
    for board in "abc":
        world.watch.coordinates("f", board, "a")
    before = len(world.watch.lines)
    for board in "abc":
        world.watch.coordinates("f", board, "c")
    assert [line.text for line in world.watch.lines[before:]] == [
        "c is taken for the coordinator of f, first by a", "all members take c for the coordinator of f",
    ]  # fmt: skip
