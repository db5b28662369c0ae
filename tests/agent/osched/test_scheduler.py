"""The scheduler with an engine of the test's own: real processes, a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.drivers.base import DriverError
from agent.drivers.entities import EngineReport, Operator, Query
from agent.osched import answers
from agent.osched.cooperation.exchange import LEAST_S, Peers
from agent.osched.kernel.door import Door
from agent.osched.rules import RuleError
from agent.osched.scheduler import PATIENCE_S, Scheduler
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError
from edgert.core.settings.agent import Sched
from tests.agent.osched.worlds import Worker, needs_nice, worker

pytestmark = needs_nice


class Engine:
    """Two queries, each with one operator in a process."""

    name = "engine"

    def __init__(self, a: Worker, b: Worker) -> None:
        self.queues = {"a": 0.0, "b": 0.0}
        self.answers = True
        self.weights: dict[str, Mapping[str, float]] = {}
        self.closed = False
        self.operators = {
            name: Operator(
                name, f"q{name}", instance=name, threads=tuple(process.threads()), location=f"process {name}"
            )
            for name, process in (("a", a), ("b", b))
        }

    async def report(self) -> EngineReport:
        if not self.answers:
            raise DriverError("engine: no answer")
        queries = {o.query: Query(o.query) for o in self.operators.values()}
        return EngineReport("engine", dict(self.operators), queries, {"queue_size": dict(self.queues)}, weighable=True)

    async def weigh(self, flow: str, weights: Mapping[str, float]) -> None:
        self.weights[flow] = weights

    async def close(self) -> None:
        self.closed = True


def scheduler(
    folder: Path, engine: Engine, clock: VirtualClock, settings: Sched, peers: Peers | None = None
) -> Scheduler:
    return Scheduler(settings, [engine], Door(folder / "journal"), clock, lambda: 0.5, peers)


class Board:
    """One of two boards that tell each other at once."""

    def __init__(self, name: str, told: dict[str, bytes]) -> None:
        self._name, self._all = name, told

    def told(self) -> dict[str, bytes]:
        return {name: payload for name, payload in self._all.items() if name != self._name}

    def members(self) -> int:
        return 2

    def tell(self, payload: bytes) -> None:
        self._all[self._name] = payload


def cut(engine: Engine, name: str, remote: tuple[str, ...]) -> None:
    """The engine has one operator of the flow `f`; it sends to `remote` on the other board."""
    (operator, *_) = engine.operators.values()
    engine.operators = {f"f/{name}": replace(operator, name=f"f/{name}", query="f", remote=remote)}
    engine.queues = {f"f/{name}": 0.0}


def test_nice_values_follow_queues_from_period_to_period(tmp_path: Path) -> None:
    async def story() -> None:
        with worker(threads=1) as a, worker() as b:
            engine, clock = Engine(a, b), VirtualClock()
            made = scheduler(tmp_path, engine, clock, Sched())
            engine.queues = {"a": 10.0, "b": 100.0}
            await made.turn()
            assert (a.nices(), b.nices()) == ([10, 10], [0])
            engine.queues = {"a": 100.0, "b": 10.0}
            clock.advance(0.5)
            await made.turn()
            assert (a.nices(), b.nices()) == ([10, 10], [0]), "the policy is not due yet"
            clock.advance(0.5)
            await made.turn()
            assert (a.nices(), b.nices()) == ([0, 0], [10])
            await made.stop()
            assert (a.nices(), b.nices()) == ([0, 0], [0])
            assert engine.closed

    asyncio.run(story())


def test_an_engine_that_does_not_answer_keeps_its_values_for_some_seconds(tmp_path: Path) -> None:
    async def story() -> None:
        with worker() as a, worker() as b:
            engine, clock = Engine(a, b), VirtualClock()
            made = scheduler(tmp_path, engine, clock, Sched())
            engine.queues = {"a": 10.0, "b": 100.0}
            await made.turn()
            engine.answers = False
            clock.advance(1.0)
            await made.turn()
            assert a.nices() == [10]
            assert answers.status(made)["errors"] == ["engine: no answer"]
            clock.advance(PATIENCE_S)
            await made.turn()
            assert a.nices() == [0]
            await made.stop()

    asyncio.run(story())


def test_a_policy_is_switched_by_hand_and_none_puts_all_back(tmp_path: Path) -> None:
    async def story() -> None:
        with worker() as a, worker() as b:
            engine, clock = Engine(a, b), VirtualClock()
            engine.queues = {"a": 10.0, "b": 100.0}
            made = scheduler(tmp_path, engine, clock, Sched(policy="constant"))
            await made.turn()
            assert (a.nices(), b.nices()) == ([0], [0])
            made.use("qs every 50 ms")
            await made.turn()
            assert (a.nices(), b.nices()) == ([10], [0])
            with pytest.raises(RuleError, match="got 'worst'"):
                made.use("worst")
            made.use("none")
            await made.turn()
            assert (a.nices(), b.nices()) == ([0], [0])
            await made.stop()

    asyncio.run(story())


def test_a_policy_that_lacks_a_metric_changes_nothing_and_the_status_says_which(tmp_path: Path) -> None:
    async def story() -> None:
        with worker() as a, worker() as b:
            made = scheduler(tmp_path, Engine(a, b), VirtualClock(), Sched(policy="hr"))
            await made.turn()
            assert (a.nices(), b.nices()) == ([0], [0])
            (error,) = answers.status(made)["errors"]
            assert "expected the metric rows_out, which highest_rate → path_selectivity → selectivity needs" in error
            await made.stop()

    asyncio.run(story())


def test_pool_weights_are_set_where_they_change_and_taken_back(tmp_path: Path) -> None:
    async def story() -> None:
        with worker() as a, worker() as b:
            engine, clock = Engine(a, b), VirtualClock()
            engine.queues = {"a": 0.0, "b": 100.0}
            made = scheduler(tmp_path, engine, clock, Sched(pool_weights=True))
            await made.turn()
            assert engine.weights == {"qa": {"a": 1.0}, "qb": {"b": 16.0}}
            engine.weights = {}
            clock.advance(1.0)
            await made.turn()
            assert engine.weights == {}, "they hold already"
            await made.stop()
            assert engine.weights == {"qb": {"b": 1.0}}

    asyncio.run(story())


def test_status_explain_and_dry_run_say_what_was_decided(tmp_path: Path) -> None:
    async def story() -> None:
        with worker() as a, worker() as b:
            engine, clock = Engine(a, b), VirtualClock()
            engine.queues = {"a": 10.0, "b": 100.0}
            made = scheduler(tmp_path, engine, clock, Sched())
            await made.turn()
            clock.advance(1.0)
            await made.turn()
            row = answers.status(made)["operators"][0]
            assert row["operator"] == "a"
            assert (row["metrics"], row["priority"], row["nice"]) == ({"queue_size": 10.0}, 10.0, 10)
            assert 0.0 <= row["cpu"] < 1.0
            told = answers.explain(made, "a")
            assert (told["rank"], told["of"]) == (2, 2)
            assert told["metrics"]["input_output_queue"]["value"] == 11.0
            assert "cost_s" not in told["metrics"]
            (tid,) = (thread.tid for thread in a.threads())
            assert f"thread {tid} (process a): nice 10" in answers.dry_run(made, "qs")["actions"]
            with pytest.raises(EdgertError, match="expected one of a, b, got 'c'"):
                answers.explain(made, "c")
            with pytest.raises(EdgertError, match="policy: expected one of qs"):
                answers.dry_run(made, "best")
            engine.answers = False
            clock.advance(1.0)
            await made.turn()
            assert answers.dry_run(made, "qs")["errors"] == ["engine: no answer"], "no plan of nothing"
            await made.stop()

    asyncio.run(story())


def test_a_rule_with_a_condition_runs_its_policy_only_under_it(tmp_path: Path) -> None:
    async def story() -> None:
        with worker() as a, worker() as b:
            engine, clock = Engine(a, b), VirtualClock()
            engine.queues = {"a": 10.0, "b": 100.0}
            made = scheduler(tmp_path, engine, clock, Sched(policy="when cpu < 200 %: qs else: none"))
            await made.turn()
            assert a.nices() == [10]
            made.use("when cpu > 200 %: qs else: none")
            await made.turn()
            assert a.nices() == [0]
            await made.stop()

    asyncio.run(story())


def test_engines_in_two_sessions_are_put_into_one_group_where_nice_would_not_compare(tmp_path: Path) -> None:
    async def story() -> None:
        with worker(session=True) as a, worker(session=True) as b:
            engine, clock = Engine(a, b), VirtualClock()
            engine.queues = {"a": 10.0, "b": 100.0}
            made = scheduler(tmp_path, engine, clock, Sched())
            cgroups = made.door.able.cgroups
            if cgroups is None or not made.door.proc.autogroup_on():
                pytest.skip("needs autogroups and a cgroup with the cpu controller to write to")
            before = cgroups.group_of(a.threads()[0])
            for _ in range(2):
                await made.turn()
                clock.advance(1.0)
                assert cgroups.group_of(a.threads()[0]) == cgroups.group_of(b.threads()[0]) == cgroups.root
                assert (a.nices(), b.nices()) == ([10], [0])
            assert "one control group for all: the processes are in 2 " in "".join(answers.status(made)["notes"])
            await made.stop()
            assert cgroups.group_of(a.threads()[0]) == before

    asyncio.run(story())


def test_equal_shares_per_query_and_nice_within(tmp_path: Path) -> None:
    async def story() -> None:
        with worker(threads=1) as a, worker() as b:
            engine = Engine(a, b)
            first, second = a.threads()
            engine.operators["c"] = Operator("c", "qa", instance="c", threads=(second,))
            engine.operators["a"] = Operator("a", "qa", instance="a", threads=(first,))
            engine.queues = {"a": 10.0, "b": 1.0, "c": 100.0}
            made = scheduler(tmp_path, engine, VirtualClock(), Sched(mechanism="groups+nice"))
            if (cgroups := made.door.able.cgroups) is None:
                pytest.skip("needs a cgroup with the cpu controller to write to")
            await made.turn()
            assert cgroups.group_of(first) == cgroups.group_of(second) == cgroups.folder("qa")
            assert cgroups.group_of(b.threads()[0]) == cgroups.folder("qb")
            share = "cpu.shares" if cgroups.version == 1 else "cpu.weight"
            usual, twice = ("1024", "2048") if cgroups.version == 1 else ("100", "200")
            assert (cgroups.folder("qa") / share).read_text().strip() == usual
            assert (cgroups.root / share).read_text().strip() == twice, "as the two processes had apart"
            assert (a.nices(), b.nices()) == ([10, 0], [0])
            await made.stop()
            assert not cgroups.root.exists()

    asyncio.run(story())


def test_a_policy_in_the_settings_that_is_none_is_refused_with_its_place(tmp_path: Path) -> None:
    with worker() as a, worker() as b, pytest.raises(RuleError, match=r"sched\.policy: expected a policy"):
        scheduler(tmp_path, Engine(a, b), VirtualClock(), Sched(policy="best"))


def test_a_turn_that_fails_does_not_end_the_scheduler(tmp_path: Path) -> None:
    class Broken(Engine):
        async def report(self) -> EngineReport:
            self.times = getattr(self, "times", 0) + 1
            if self.times == 1:
                raise ZeroDivisionError
            return await super().report()

    async def story() -> None:
        with worker() as a, worker() as b:
            engine, clock = Broken(a, b), VirtualClock()
            engine.queues = {"a": 10.0, "b": 100.0}
            made = scheduler(tmp_path, engine, clock, Sched())

            async def sleep(seconds: float) -> None:
                clock.advance(seconds)
                if a.nices() == [10]:
                    raise asyncio.CancelledError

            with pytest.raises(asyncio.CancelledError):
                await made.run(sleep)
            assert engine.times == 2
            assert a.nices() == [0]

    asyncio.run(story())


def test_equal_priorities_get_equal_nice_values_on_two_boards_that_share_a_flow(tmp_path: Path) -> None:
    async def story(cooperate: bool) -> tuple[list[int], list[int]]:
        told: dict[str, bytes] = {}
        with worker() as a, worker() as b, worker() as c, worker() as d:
            clock, engines = VirtualClock(), {"one": Engine(a, b), "two": Engine(c, d)}
            both = engines["one"].operators["b"], engines["two"].operators["b"]
            cut(engines["one"], "in", ("f/out",))
            cut(engines["two"], "out", ())
            for engine, operator, queue in zip(engines.values(), both, (10.0, 100.0), strict=True):
                engine.operators["b"] = operator
                engine.queues["b"] = queue
            engines["one"].queues["f/in"] = 1.0
            boards = [
                scheduler(tmp_path / name, engine, clock, Sched(cooperate=cooperate), Board(name, told))
                for name, engine in engines.items()
            ]
            for _ in range(5):
                for board in boards:
                    await board.turn()
                clock.advance(LEAST_S)
            state = answers.cooperation(boards[0])
            assert state["state"] == ("on" if cooperate else "off")
            assert list(state["boards"]) == (["two"] if cooperate else [])
            assert bool(told) == cooperate
            notes = answers.dry_run(boards[0], "qs")["notes"]
            assert ("on one scale with those of two" in " ".join(notes)) == cooperate
            found = a.nices() + b.nices(), c.nices() + d.nices()
            if cooperate:
                remote = answers.explain(boards[0], "f/in")["remote"]
                assert remote == {"f/out": {"queue_size": 0.0}}
                boards[0].use("none")
                await boards[0].turn()
                assert told["one"] == b"", "taken back"
            for board in boards:
                await board.stop()
        return found

    # one: 1 and 10 rows, two: 0 and 100 rows; apart, 10 rows on the one are as much as 100 on the other
    apart_one, apart_two = asyncio.run(story(cooperate=False))
    assert (apart_one[1], apart_two[1]) == (0, 0)
    one, two = asyncio.run(story(cooperate=True))
    assert two == [19, 0]
    assert one[0] > one[1] > 0
