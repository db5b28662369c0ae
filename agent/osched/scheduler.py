"""The main loop (Lachesis §4, Algorithm 1): reports → schedule → door, whenever the policy in force is due."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from agent.drivers.base import Driver, Weighing
from agent.drivers.entities import EngineReport, Thread
from agent.drivers.procfs import CpuTimes
from agent.osched.cooperation.exchange import Cooperation, Peers
from agent.osched.kernel.actions import SetGroup, SetWeights
from agent.osched.kernel.cpus import on_by_default
from agent.osched.kernel.door import AppliedActions, Door
from agent.osched.kernel.grouping import incomparable
from agent.osched.normalise import PrioritySmoothing
from agent.osched.policy.policies import NONE, POLICIES, Draw
from agent.osched.rules import Choice, RuleError, common_period_s, parse
from agent.osched.schedule import Mechanism, PeriodSchedule, decide
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, show
from edgert.core.settings.agent import Sched

log = logging.getLogger(__name__)
COMPARE_S: Final = 10.0
"""Sessions and control groups of the same processes are compared so often: they hardly ever change."""
SHARES_S: Final = 0.9
"""Shortest time over which the CPU shares that threads got are measured; they are for people."""
FIRST_S: Final = 1.0
"""How long the first engine's answer is waited for."""
LATER_S: Final = 0.25
"""How long the first engine to answer waits for the others."""
PATIENCE_S: Final = 5.0
"""How long the last report of an engine that does not answer is used; then its threads are put back."""


class Scheduler:
    """Looks, decides and acts once per period, until it is stopped."""

    def __init__(
        self,
        settings: Sched,
        drivers: Sequence[Driver],
        door: Door,
        clock: Clock,
        random: Draw,
        peers: Peers | None = None,
    ) -> None:
        """`peers`: the agents of other boards; None: this board is alone."""
        self.settings, self.drivers, self.door = settings, drivers, door
        self.peers, self.cooperation = peers if settings.cooperate else None, Cooperation()
        self._clock, self._random = clock, random
        self.rule_text = settings.policy
        try:
            self.rule = parse(settings.policy)
        except RuleError as error:
            raise RuleError(f"sched.policy: {error}") from None
        if settings.nice_best > settings.nice_worst:
            got = f"{settings.nice_best} and {settings.nice_worst}"
            raise EdgertError(f"sched.nice_best: expected at most sched.nice_worst (greater is less urgent), got {got}")
        names = sorted(driver.name for driver in drivers)
        if len(set(names)) < len(names):
            raise EdgertError(f"sched.drivers: expected engines of different kinds, got {', '.join(names)}")
        wanted = settings.affinity == "on" or (settings.affinity == "auto" and on_by_default())
        self.how = Mechanism(
            settings.mechanism, settings.nice_best, settings.nice_worst, settings.pool_weights,
            door.able.clusters if wanted else None, quotas(settings),
        )  # fmt: skip
        self.running = Choice(NONE)
        self.schedule = PeriodSchedule()
        self.reports: dict[str, EngineReport] = {}
        self.outcome = AppliedActions()
        self.measures: dict[str, float] = {}
        self.errors: dict[str, str] = {}
        """Driver -> why it could not be asked."""
        self.shares: dict[Thread, tuple[float, float]] = {}
        """Thread -> cores that it got, and cores that it waited for, in the last period (of a second or more)."""
        self.periods = 0
        self.lasted_s = {"report": 0.0, "action": 0.0, "cpu": 0.0, "action_cpu": 0.0}
        """Seconds of the last period: asking the engines; from their answers to the last action; CPU time of this
        process in all, and from the answers to the last action."""
        self.why_grouped = ""
        self._asking: dict[str, asyncio.Future[EngineReport]] = {}
        """Driver -> its look that is under way."""
        self._heard_s: dict[str, float] = {}
        self._due_s: dict[Choice, float] = {}
        self._before: tuple[float, dict[Thread, CpuTimes], tuple[float, float]] = (0.0, {}, (0.0, 0.0))
        self._compared: tuple[list[int], float] = ([], 0.0)
        """The processes whose sessions and groups were compared last, and when."""
        self._smoothing = PrioritySmoothing(settings.smoothing)
        self._weights: dict[str, Mapping[str, float]] = {}
        self._looking = asyncio.Lock()

    # -- life

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Runs until it is cancelled; then every thread is as it was before."""
        try:
            left = await asyncio.to_thread(self.door.undo_left_over)
        except OSError as error:  # until it can be read, the door changes nothing, and the status says so
            log.error("osched: the journal cannot be read: %s", error)
        else:
            if left:
                log.warning("osched: %d changes of an agent that was killed were undone", left)
        for text in self.door.able.lacks():
            log.warning("osched: %s", text)
        try:
            while True:
                try:
                    await self.turn()
                except Exception:  # the rest of the agent goes on; threads keep the values of the turn before
                    log.exception("osched: this turn was given up")
                now = self._clock.monotonic()
                step = common_period_s(self.rule.periods(self.settings.period_s))
                await sleep(step - now % step)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Put everything back."""
        for look in self._asking.values():
            look.cancel()
        await asyncio.to_thread(self.door.close)
        await self._weigh({flow: dict.fromkeys(of, 1.0) for flow, of in self._weights.items()})
        for driver in self.drivers:
            await driver.close()

    async def turn(self) -> None:
        """One turn of the loop: a look if the policy in force is due. Never raises an error of an engine."""
        self._measure()
        choice, now = self.rule.choose(self.measures), self._clock.monotonic()
        if now < self._due_s.get(choice, 0.0) and choice == self.running:
            return
        # A little early, so that a clock reading just before the period's end does not cost a whole one.
        self._due_s = {choice: now + (choice.period_s or self.settings.period_s) * 0.9}
        if choice != self.running:
            log.info("osched: policy %s instead of %s", choice.policy, self.running.policy)
            self.running = choice
        await self.look()

    def use(self, text: str) -> None:
        """Another rule from now on. Raises `RuleError`."""
        self.rule = parse(text)
        self.rule_text = text
        self._due_s = {}

    def now(self) -> float:
        """Returns the time of the scheduler's clock, monotonic seconds."""
        return self._clock.monotonic()

    # -- one period

    async def look(self) -> None:
        """Ask, decide, act."""
        async with self._looking:
            began, cpu = time.perf_counter(), time.process_time()
            if self.running.policy == NONE:  # it is not to wait for an engine
                await asyncio.to_thread(self.door.undo)
            await self._ask()
            answered, cpu_before = time.perf_counter(), time.process_time()
            if self.peers is not None:
                self.cooperation.hear(self.peers.told(), self._clock.monotonic())
            if self.running.policy == NONE:
                self.schedule, self.outcome = PeriodSchedule(NONE), AppliedActions()
                await self._weigh({})
            else:
                self.schedule = self.decide(self.running.policy, self._smoothing)
                outcome = self.door.apply_at_once(self.schedule.actions)
                if outcome is None:
                    outcome = await asyncio.to_thread(self.door.apply, self.schedule.actions)
                self.outcome = outcome
                await self._weigh({a.flow: a.weights for a in self.schedule.actions if isinstance(a, SetWeights)})
            done, cpu_after = time.perf_counter(), time.process_time()
            self._tell_peers()
            self._share_out()
            self.lasted_s = {
                "report": answered - began,
                "action": done - answered,
                "cpu": time.process_time() - cpu,
                "action_cpu": cpu_after - cpu_before,
            }
            self.periods += 1

    async def _ask(self) -> None:
        """All engines at once. One that takes long holds up no other, and no rule, policy or end of the agent: its look
        goes on, the one before it counts."""
        for driver in self.drivers:
            if driver.name not in self._asking:
                self._asking[driver.name] = asyncio.ensure_future(driver.report())
        if looks := set(self._asking.values()):
            await asyncio.wait(looks, timeout=FIRST_S, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(looks, timeout=LATER_S)
        for name in [driver.name for driver in self.drivers]:
            if self._asking[name].done():
                self._take(name, self._asking.pop(name))
            if name not in self._heard_s or self._clock.monotonic() - self._heard_s[name] > PATIENCE_S:
                self.reports.pop(name, None)

    def _take(self, name: str, look: asyncio.Future[EngineReport]) -> None:
        error = look.exception()
        if error is None:
            self.reports[name], self._heard_s[name] = look.result(), self._clock.monotonic()
            self.errors.pop(name, None)
            return
        # A driver may be a third party's, with faults.
        text = str(error) if isinstance(error, EdgertError) else f"{name}: the driver failed: {error!r}"
        if name not in self.errors:
            log.warning("osched: %s", text, exc_info=None if isinstance(error, EdgertError) else error)
        self.errors[name] = text

    def decide(self, policy: str, smoothing: PrioritySmoothing | None = None) -> PeriodSchedule:
        """The schedule of `policy` for what was reported last; nothing is changed."""
        reports = self.cooperation.completed(list(self.reports.values()))
        over = self.cooperation.span(policy)
        schedule = decide(reports, POLICIES[policy], self.how, self._random, smoothing, over)
        if schedule.threads:
            self._root_group(schedule)
        return schedule

    def _tell_peers(self) -> None:
        """After the actions: it is not urgent."""
        policy, now = self.running.policy, self._clock.monotonic()
        if self.peers is None:
            return
        if policy == NONE:
            if self.cooperation.silent():
                self.peers.tell(b"")
            return
        reports = list(self.reports.values())
        payload = self.cooperation.news(reports, policy, self.schedule.span, self.peers.members(), now)
        if payload is not None:
            self.peers.tell(payload)

    def _root_group(self, schedule: PeriodSchedule) -> None:
        """All scheduled threads into one group, where their nice values would not compare otherwise.

        Its share is as many default shares as there are processes: together they get what they got apart.
        """
        kind, cgroups = self.settings.root_group, self.door.able.cgroups
        pids = sorted({thread.pid for thread in schedule.threads})
        share = float(len(pids))
        if any(isinstance(action, SetGroup) for action in schedule.actions):
            schedule.actions.insert(0, SetGroup("", share, ()))  # the groups of the queries are within it
            return
        if kind == "always":
            self.why_grouped = "sched.root_group is always"
        elif not self.why_grouped and self._must_compare(pids):
            self.why_grouped = incomparable(pids, self.door.proc, cgroups)
        if self.why_grouped and kind != "never" and cgroups is not None:
            schedule.actions.append(SetGroup("", share, tuple(schedule.threads)))

    def _must_compare(self, pids: list[int]) -> bool:
        """Other processes than at the last comparison, or a while ago: it reads several files per process."""
        now, (before, at_s) = self._clock.monotonic(), self._compared
        if pids == before and now - at_s < COMPARE_S:
            return False
        self._compared = (pids, now)
        return True

    async def _weigh(self, weights: Mapping[str, Mapping[str, float]]) -> None:
        for driver in self.drivers:
            if isinstance(driver, Weighing):
                gone = {flow: dict.fromkeys(of, 1.0) for flow, of in self._weights.items() if flow not in weights}
                for flow, of in {**weights, **gone}.items():
                    if self._weights.get(flow) != of:
                        try:
                            await driver.weigh(flow, of)
                        except EdgertError as error:
                            self.errors[f"{driver.name} weights"] = str(error)
        self._weights = dict(weights)

    # -- measuring

    def _measure(self) -> None:
        """The board's measures that rules ask for."""
        busy, total = self.door.proc.busy_and_total_s()
        busy_before, total_before = self._before[2]
        if total > total_before:
            self.measures["cpu"] = (busy - busy_before) / (total - total_before)
            self._before = (*self._before[:2], (busy, total))
        if (pressure := self.door.proc.pressure()) is not None:
            self.measures["pressure"] = pressure

    def _share_out(self) -> None:
        """Cores that each thread got, and waited for, since the last look."""
        at, (before_at, before, board) = self._clock.monotonic(), self._before
        if before and at - before_at < SHARES_S:
            return
        threads = {
            thread for report in self.reports.values() for o in report.operators.values() for thread in o.threads
        }
        times = {thread: t for thread in threads if (t := self.door.proc.times(thread)) is not None}
        passed = at - before_at
        self.shares = {
            thread: ((t.ran_s - before[thread].ran_s) / passed, (t.waited_s - before[thread].waited_s) / passed)
            for thread, t in times.items()
            if thread in before and passed > 0.0
        }
        self._before = (at, times, board)


def quotas(settings: Sched) -> dict[str, float]:
    """Query -> cores that it may use at most. Raises `EdgertError`."""
    found: dict[str, float] = {}
    for text in settings.quotas:
        query, equals, number = text.rpartition("=")
        try:
            cores = float(number)
        except ValueError:
            cores = math.nan
        if not query or not equals or not 0.01 <= cores <= 4096.0:
            raise EdgertError(f"sched.quotas: expected QUERY=CORES with 0.01 to 4096 cores, got {show(text)}")
        found[query] = cores
    if found and "groups" not in settings.mechanism.split("+"):
        raise EdgertError(f"sched.quotas: expected groups or groups+nice as sched.mechanism, got {settings.mechanism}")
    return found
