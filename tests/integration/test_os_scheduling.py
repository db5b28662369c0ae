"""A running gateway with two slots, and the agent that renices them by queue size."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgert.control.client import call
from edgert.core.errors import EdgertError
from edgert.flow.document import to_toml
from tests.agent.osched.worlds import PROC, needs_nice
from tests.integration.rig import FLEET, Gateway, Process, Rig
from tests.integration.two_slots import two_slots
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, needs_nice, pytest.mark.timeout(240)]
KILLS = int(os.environ.get("EDGERT_TEST_KILLS", "5"))


def run(arguments: list[str]) -> str:
    """Output of the command line."""
    done = subprocess.run([sys.executable, "-m", "edgert", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


class Agent(Process):
    """The agent daemon, or OS scheduling alone."""

    def __init__(self, folder: Path, gateway: Gateway, policy: str, alone: bool) -> None:
        self.socket, self.data = folder / "agent.sock", folder / "agent"
        config, control = folder / "agent.toml", gateway.data / "control.sock"
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
    slots = {o["query"]: o["place"] for o in status["operators"]}
    assert set(slots.values()) == {"slot 0", "slot 1"}
    publisher = rig.publishing([(f"hot/d{n % 9}", b'{"v": 1}') for n in range(6_000)], rate=2_000.0)
    seen: list[dict[str, Any]] = []

    def hot_first() -> bool:
        rows = agent.status().get("operators", [])
        queues = {o["operator"]: o["metrics"].get("queue_size", 0) for o in rows if o["query"] == "hot"}
        if max(queues.values(), default=0) > 500:
            seen.append({o["place"]: o["nice"] for o in rows})
        return bool(seen)

    wait_until(hot_first, "a long queue of the flow hot", 30.0)
    assert seen[0] == {slots["hot"]: 0, slots["cold"]: 19}
    weights = {
        name: instance["weight"]
        for name, told in call(gateway.data / "control.sock", "figures")["flows"].items()
        for instance in told["instances"].values()
    }
    assert weights == {"hot": 16.0, "cold": 1.0}, "in the pools, too"
    now = nices(gateway)
    assert sorted(map(sorted, now.values())) == sorted([[os.getpriority(os.PRIO_PROCESS, 0)], [0], [19]]), (
        "the daemon as it was, the busy slot at 0, the idle slot at 19"
    )
    publisher.join()
    shown = run(["sched", "--socket", str(agent.socket), "status"])
    print(shown)
    assert "policy qs" in shown
    assert "cold/" in shown
    assert "nice 19" in run(["sched", "--socket", str(agent.socket), "dry-run", "qs"])
    name = next(o["operator"] for o in status["operators"] if o["query"] == "hot")
    told = run(["sched", "--socket", str(agent.socket), "explain", name])
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


@pytest.mark.timeout(240 + 10 * KILLS)
def test_kill_9_at_random_moments_leaves_nothing_after_the_next_start_and_stop(rig: Rig, gateway: Gateway) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw, agent = random.Random(seed), Agent(rig.folder, gateway, "random every 50 ms", alone=True)
    rig.processes.append(agent)
    agent.start()
    began = time.monotonic()
    wait_until(lambda: not as_before(gateway), "the first change", 60.0)
    first_s = time.monotonic() - began
    agent.kill()
    changed = int(not as_before(gateway))
    for _ in range(KILLS - 1):
        agent.start()
        # From before its first change to well after it; how long a start takes depends on what else runs.
        threading.Event().wait(draw.uniform(0.0, 2.0 * first_s))
        agent.kill()
        changed += not as_before(gateway)
    assert changed, "no kill came after a change"
    agent.start()
    wait_until(lambda: agent.status().get("periods", 0) > 0, "the next start", 60.0)
    assert agent.terminate() == 0
    assert as_before(gateway), (nices(gateway), agent.text()[-2000:])
    print(f"{changed} of {KILLS} kills left changed threads behind; a start takes {first_s:.1f} s")
