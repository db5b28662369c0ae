"""A running gateway with two slots, and the agent that renices them by queue size."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.osched.kernel import slices
from agent.osched.kernel.cgroups import ROOT
from agent.osched.kernel.rights import abilities
from edgert.control.client import call
from edgert.core.errors import EdgertError
from edgert.core.toml import to_toml
from tests.agent.osched.worlds import PROC, needs_nice
from tests.integration.osched.two_slots import two_slots
from tests.integration.rig import FLEET, Gateway, Process, Rig
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, needs_nice]
ABLE = abilities()


def run(arguments: list[str]) -> str:
    """Output of the command line."""
    done = subprocess.run([sys.executable, "-m", "edgert", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


class Agent(Process):
    """The agent daemon, or OS scheduling alone."""

    def __init__(self, folder: Path, gateway: Gateway, policy: str, alone: bool) -> None:
        self.socket, self.data = folder / "agent.sock", folder / "agent"
        self._pids: list[int] = []
        self.config = config = folder / "agent.toml"
        control = gateway.data / "control.sock"
        sched = {"policy": policy, "pool_weights": not alone}
        if not alone:
            run(["fleet", "key", str(folder / "fleet.key")])
            agent = {"port": 0, "key_file": str(folder / "fleet.key"), "socket": str(self.socket)}
            config.write_text(to_toml({
                "gateway": {"id": gateway.name, "fleet": FLEET, "data_dir": str(self.data)},
                "agent": {**agent, "gateway_socket": str(control)}, "sched": sched,
            }))  # fmt: skip
            super().__init__(["agent", "--config", str(config)], folder / "agent.log")
            return
        config.write_text(to_toml({"sched": sched}))
        super().__init__(
            ["agent.osched", "--config", str(config), "--gateway", str(control),
             "--socket", str(self.socket), "--data", str(self.data)], folder / "agent.log",
        )  # fmt: skip

    def start(self) -> None:
        super().start()
        assert self.process is not None
        self._pids.append(self.process.pid)

    def root_groups(self) -> list[str]:
        """Those that are left of all that it made, in any of its lives."""
        if ABLE.cgroups is None:
            return []
        paths = [ABLE.cgroups.parent / f"{ROOT}-{pid}" for pid in self._pids]
        return [str(path) for path in paths if path.exists()]

    def ask(self, verb: str, **args: Any) -> Any:
        return call(self.socket, f"sched.{verb}", args)

    def status(self) -> dict[str, Any]:
        """Empty while it does not answer."""
        try:
            answer: dict[str, Any] = self.ask("status")
        except EdgertError:
            return {}
        return answer


@pytest.fixture
def gateway(rig: Rig) -> Gateway:
    return two_slots(rig)


def nices(gateway: Gateway) -> dict[int, set[int]]:
    """Process of a slot, and of the daemon -> nice values of its threads."""
    assert gateway.process is not None
    pids = [gateway.process.pid, *(child.pid for child in psutil.Process(gateway.process.pid).children())]
    return {pid: {seen.nice for seen in PROC.threads(pid)} for pid in pids}


def weights(gateway: Gateway) -> dict[str, float]:
    """Flow -> the weight of its instances in the pools."""
    return {
        name: instance["weight"]
        for name, told in call(gateway.data / "control.sock", "figures")["flows"].items()
        for instance in told["instances"].values()
    }


def as_before(gateway: Gateway) -> bool:
    return set().union(*nices(gateway).values()) == {os.getpriority(os.PRIO_PROCESS, 0)}


def test_nice_values_follow_queue_sizes_and_all_is_put_back_at_the_end(rig: Rig, gateway: Gateway) -> None:
    agent = Agent(rig.folder, gateway, "qs every 100 ms", alone=False)
    rig.processes.append(agent)
    agent.start()
    wait_until(lambda: len(agent.status().get("operators", ())) >= 2, "the agent's first report")
    status = agent.status()
    assert status["policy"] == "qs"
    assert status["errors"] == []
    slots = {o["query"]: o["location"] for o in status["operators"]}
    assert set(slots.values()) == {"slot 0", "slot 1"}
    looked = threading.Event()
    messages = ((f"hot/d{n % 9}", b'{"v": 1}') for n in itertools.count())
    publisher = rig.publishing(itertools.takewhile(lambda _: not looked.is_set(), messages), rate=2_000.0)
    seen: list[dict[str, Any]] = []

    def hot_first() -> bool:
        rows = agent.status().get("operators", [])
        queues = {o["operator"]: o["metrics"].get("queue_size", 0) for o in rows if o["query"] == "hot"}
        if max(queues.values(), default=0) > 500:
            seen.append({o["location"]: o["nice"] for o in rows})
        return bool(seen)

    wait_until(hot_first, "a long queue of the flow hot")
    assert seen[0] == {slots["hot"]: 0, slots["cold"]: 19}
    wait_until(lambda: weights(gateway) == {"hot": 16.0, "cold": 1.0}, "the weights in the pools, too")
    wanted = sorted([[os.getpriority(os.PRIO_PROCESS, 0)], [0], [19]])
    wait_until(
        lambda: sorted(map(sorted, nices(gateway).values())) == wanted,
        "the daemon as it was, the busy slot at 0, the idle slot at 19",
    )
    looked.set()
    publisher.join()
    shown = run(["sched", "status", "--socket", str(agent.socket)])
    print(shown)
    assert "policy qs" in shown
    assert "cold/" in shown
    assert "nice 19" in run(["sched", "dry-run", "qs", "--socket", str(agent.socket)])
    name = next(o["operator"] for o in status["operators"] if o["query"] == "hot")
    told = run(["sched", "explain", name, "--socket", str(agent.socket)])
    print(told)
    assert "queue_size" in told
    assert "priority" in told
    with pytest.raises(EdgertError, match="expected a policy"):
        agent.ask("policy", policy="best")
    assert agent.ask("policy", policy="none")["policy"] == "none"
    assert as_before(gateway)
    agent.ask("policy", policy="random every 50 ms")
    wait_until(lambda: not as_before(gateway), "random nice values")
    assert agent.terminate() == 0
    assert as_before(gateway)


def values(gateway: Gateway) -> dict[int, set[tuple[int, int, str]]]:
    """Process of a slot, and of the daemon -> nice value, slice and control groups of its threads."""
    found: dict[int, set[tuple[int, int, str]]] = {}
    for pid in nices(gateway):
        found[pid] = set()
        for seen in PROC.threads(pid):
            with contextlib.suppress(OSError):  # it has ended since
                length = slices.get(seen.thread.tid) if ABLE.slice_ns is not None else 0
                found[pid].add((seen.nice, length, PROC.cgroups(pid, seen.thread.tid)))
    return found


@pytest.mark.parametrize(
    "kills",
    [
        5,
        pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_after_kill_9_at_random_moments_the_next_start_leaves_nothing_of_it(
    rig: Rig, gateway: Gateway, kills: int
) -> None:
    """While it starts and undoes, before, within and after its first changes: by nice values and slices in the root
    group, or by groups of queries and nice values in them."""
    seed = int(os.environ.get("EDGERT_TEST_SEED") or random.randrange(2**32))
    print(f"seed {seed}: EDGERT_TEST_SEED={seed} draws the same moments")
    draw, agent = random.Random(seed), Agent(rig.folder, gateway, "none", alone=True)
    rig.processes.append(agent)
    own(max(nices(gateway)))
    before, left, early, start_s = values(gateway), Counter[str](), 0, 0.0

    def start() -> None:
        mechanism = draw.choice(("nice+slice", "groups+nice") if ABLE.slice_ns else ("nice", "groups+nice"))
        agent.config.write_text(to_toml({"sched": {"policy": "none", "mechanism": mechanism, "root_group": "always"}}))
        agent.start()

    def started() -> float:
        """Seconds until the agent's first period; nothing of the killed ones is left then."""
        began = time.monotonic()
        wait_until(lambda: agent.status().get("periods", 0) > 0, "the next start", 60.0, lambda: int(2 * agent.cpu_s))
        assert values(gateway) == before, agent.text()[-2000:]
        assert agent.root_groups() == []
        return time.monotonic() - began

    done = 0
    while done < kills or (not left["nice"] and done < 10 * kills):  # a slow agent dies before its first change
        done += 1
        start()
        if start_s and draw.random() < 0.25:
            early += 1
            threading.Event().wait(draw.uniform(0.0, 1.5 * start_s))
            agent.kill()
        else:
            start_s = started()
            asked = threading.Thread(target=order_random, args=(agent,))
            asked.start()
            threading.Event().wait(draw.uniform(0.0, 0.5))
            agent.kill()
            asked.join()
        left.update(changes(before, values(gateway)))
    assert left["nice"], "no kill came after a change"
    start()
    started()
    assert agent.terminate() == 0
    assert values(gateway) == before
    print(f"{done} kills, {early} of them while it started; so many left changed values behind: {dict(left)}")


def own(pid: int) -> None:
    """Give a slot's threads values that are not the kernel's own, so that these are no mere defaults to go back to."""
    for seen in PROC.threads(pid):
        os.setpriority(os.PRIO_PROCESS, seen.thread.tid, 3)
        if ABLE.slice_ns is not None:
            slices.put(seen.thread.tid, 4_000_000)


def order_random(agent: Agent) -> None:
    """Random priorities, every 50 ms; it may be killed before it answers."""
    with contextlib.suppress(EdgertError):
        agent.ask("policy", policy="random every 50 ms")


def changes(before: dict[int, set[tuple[int, int, str]]], now: dict[int, set[tuple[int, int, str]]]) -> set[str]:
    """The kinds of values that differ."""
    kinds = enumerate(("nice", "slice", "group"))
    return {kind for at, kind in kinds for pid in before if {v[at] for v in before[pid]} != {v[at] for v in now[pid]}}
