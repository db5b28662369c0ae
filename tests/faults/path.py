"""The whole path up to the landing or the fleet table, as processes: what faults are done to.

publisher ──▶ sensors' broker ──hop──▶ gateway (slots) ──hop──▶ central broker ──hop──▶ collector ──▶ tables
with Spark: ◀──▶ fleet job (its executor in it, or on a cluster)
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from edgert.central.tables.lease import TableLease
from edgert.core.results.macs import gateway_key
from edgert.core.text.key_lines import KEY_BYTES, key_line
from edgert.flow.options.delivery import Delivery
from tests.brokers import Broker, mosquitto
from tests.faults.circumstances import Circumstances, HopName
from tests.faults.harms import Harms
from tests.faults.heard import Heard, is_poison
from tests.faults.peer import Peer
from tests.faults.publisher import FLOW, WINDOW_S, Publisher, document
from tests.faults.routes import Routes, address
from tests.faults.spark import Cluster, Job
from tests.faults.untimed import UntimedPublisher
from tests.faults.wall_clock import environment
from tests.integration.harms import keep
from tests.integration.rig import FLEET, Gateway, Process, Rig
from tests.proxy import Hop, Loop
from tests.waiting import wait_until

Program = Literal["gateway", "collector", "second collector", "fleet job"]
BrokerName = Literal["sensors", "central"]
UNLIMITED = "max_queued_messages 0\nmax_inflight_messages 0"
LEASE_S = 5
"""Of a partition of two collectors: the shortest that there is."""
QUIET_S = 0.3
"""So long after its clients were cut off a broker has read what they had sent."""
FRESH_S = 0.6
"""What the page shows may be half a second old."""
FIRST_S = 4 * WINDOW_S
"""Of messages that come before all faults, so that some windows are closed and the fleet job has its first work."""
STILL_S = 90.0
"""Nothing that is waited for may stand still for so long: the central connection tries again after up to 60 s."""
START_CPU_S = 60.0
"""What a program uses until it does its work, at most."""


class WholePath(Rig):
    """Started by `start`; `close` ends all that runs."""

    def __init__(self, folder: Path, plan: Circumstances) -> None:
        self.brokers: dict[BrokerName, Broker] = {}
        for name in ("sensors", "central"):
            (folder / name).mkdir()
            self.brokers[name] = mosquitto(folder / name, persistence=True, settings=UNLIMITED)
        super().__init__(folder, self.brokers["central"])
        self._loop = Loop()
        self.routes = Routes()
        sensors, central = self.brokers["sensors"].port, self.brokers["central"].port
        targets: dict[HopName, int] = {"sensors": sensors, "uplink": central, "collector": central}
        self.hops = {name: Hop(self._loop, target, address()) for name, target in targets.items()}
        hops: dict[str, dict[str, Any]] = {n: {"host": hop.host, "port": hop.port} for n, hop in self.hops.items()}
        self._mac_keys = self._key_files() if plan.seed % 2 else {}
        """Every other seed has MACs on results and acknowledgements."""
        if self._mac_keys:
            hops["uplink"]["mac_key_file"] = self._mac_keys["g1"]
        settings = {"pool": plan.pool, "sensors": hops["sensors"], "central": hops["uplink"]}
        self.daemon = Gateway(folder, "g1", sensors, central, settings, environment(self.clock_file("gateway")))
        self.daemon.progress = self.progress
        self.processes.append(self.daemon)
        self._programs: dict[Program, Process] = {"gateway": self.daemon, **self._collectors(plan)}
        self.upkeep: Process | None = None
        if plan.upkeep:
            self.upkeep = Process(["tests.faults.keeping", str(self.tables)], folder / "upkeep.log")
            self.processes.append(self.upkeep)
        self.cluster = Cluster(folder) if plan.spark == "cluster" else None
        if plan.spark:
            master = self.cluster.master if self.cluster else "local[2]"
            env = environment(self.clock_file("fleet job"))
            self._programs["fleet job"] = Job(folder, self.tables, master, env, plan.many)
        self.rivals: dict[object, TableLease] = {}
        """Fault → who has taken the fleet job's lease for it."""
        self.placed: list[str] = []
        """Answers to requests for another plan."""
        self.plans: set[tuple[int, int]] = set()
        """(version of the flow, number of the plan) of each change of plan that was answered."""
        self._wanted: set[Program] = set()
        self._plan = plan
        self._publisher: Publisher | None = None
        self.heard: Heard | None = None
        """What the flow gives out, of seeds with hang-ups."""
        self.harms = Harms(folder / "yesterday")
        self.peer = Peer()

    def _key_files(self) -> dict[str, str]:
        """Of the gateway (`g1`) and of the collectors (`central`)."""
        central = bytes(range(KEY_BYTES))
        files = {}
        for name, key in (("g1", gateway_key(central, FLEET, "g1")), ("central", central)):
            path = self.folder / f"{name}.key"
            path.write_text(f"{key_line(key)}\n")
            path.chmod(0o600)
            files[name] = str(path)
        return files

    def _collectors(self, plan: Circumstances) -> dict[Program, Process]:
        """One, or two that share the results by leases. Both come to the broker on one hop."""
        hop = self.hops["collector"]
        env = {**environment(self.clock_file("collector"))}
        if self._mac_keys:
            env["EDGERT_COLLECTOR_MAC_KEY_FILE"] = self._mac_keys["central"]
        if plan.upkeep:
            env["EDGERT_UPKEEP_EVERY_S"] = "0"  # another does it
        if plan.collectors == 1:
            return {"collector": self.collector(hop.port, env, hop.host)}
        env["EDGERT_COLLECTOR_LEASE_S"] = str(LEASE_S)
        first = self.collector(hop.port, {**env, "EDGERT_COLLECTOR_ID": "first"}, hop.host)
        env |= {**environment(self.clock_file("second collector")), "EDGERT_COLLECTOR_ID": "second"}
        second = Process(first.arguments[2:], self.folder / "second-collector.log", env)
        self.processes.append(second)
        return {"collector": first, "second collector": second}

    # -- life

    def start(self) -> None:
        """Returns when the flow runs and, where there is a fleet job, its table has been written for the first time."""
        for broker in self.brokers.values():
            broker.start()
        if self.cluster is not None:
            self.cluster.start_ready()
        for program in self._programs:
            self.begin(program)
        if self.upkeep is not None:
            self.tables.mkdir(exist_ok=True)
            self.upkeep.start()
        self._connected()
        hung_up = self._plan.scene == "hung-up"
        if hung_up:
            self.hops["sensors"].hang_up("up", is_poison)
            self.heard = Heard(self.brokers["sensors"].port)
        if self._plan.scene == "hostile":
            self.peer.watch(self.hops, self.has_macs, self.program("collector"))
        flow = document(self._plan.interval_s, self.delivery, late=self.late, publishes=hung_up)
        answer = self.deploy(self.daemon, flow)
        assert answer["accepted"], answer
        if self._plan.scene == "harmed":
            keep(self.daemon.data, self.harms.folder)
        publisher = UntimedPublisher if self._plan.untimed else Publisher
        self._publisher = publisher(self.brokers["sensors"].port, self._plan.rate, self._plan.duration_s)
        self._publisher.keep_on = self._plan.scene == "harmed" or bool(self._plan.least_plans)
        if self._plan.least_plans:
            self.slots_run(STILL_S)
        if self._plan.spark:
            self.publisher.more(int(self.publisher.rate * FIRST_S))
            self._await(self.batches, "the fleet job's first batch")

    def slots_run(self, timeout_s: float) -> None:
        """Waits until all slots of the gateway run and have reported."""

        def run(status: dict[str, Any]) -> bool:
            return all(slot["running"] and "cpu_s" in slot for slot in status["slots"])

        self.daemon.wait(run, "its slots", timeout_s)

    @property
    def has_macs(self) -> bool:
        """Results and acknowledgements have them."""
        return bool(self._mac_keys)

    @property
    def delivery(self) -> Delivery:
        """Of the flow."""
        return self._plan.delivery

    @property
    def late(self) -> str:
        """What becomes of late rows."""
        return "drop" if self._plan.untimed else "ship"

    @property
    def publisher(self) -> Publisher:
        assert self._publisher is not None
        return self._publisher

    def settle(self) -> None:
        """After all faults are healed: waits until all that was published has landed, open windows included."""
        self.publisher.finish()
        self._connected()
        self._taken()
        if self.heard is not None:
            self.heard.settle(self.publisher, self.status, self.progress)
        self._await(self._removed, "the flow's removal")
        self.drained(self.daemon, STILL_S)

    def stop(self) -> None:
        """Ends all programs in order, and waits for what a killed one has left behind: nothing is written any more."""
        for name in self._programs:
            self.end(name, in_order=True)
        if "fleet job" in self._programs:
            wait_until(lambda: not self.job.left_behind, "the end of what the fleet job left behind", STILL_S)
        if self.upkeep is not None:
            self.upkeep.kill()

    def settled(self, holds: Callable[[], object], what: str) -> None:
        """Waits for what follows from what landed."""
        self._await(holds, what, poll_s=1.0)

    def progress(self) -> object:
        """Changes while anything moves on: messages, results, commits, and what starts. Leases are no part of it, nor
        what logs say: whoever lives prolongs the one and writes the other, also while what is waited for stands still.
        """
        status = self.status()
        shown: object = None
        if status:
            central, ingest = status["central"], status["ingest"]
            shown = central["connected"], central["outbox_batches"], ingest["messages"], ingest["unacknowledged"]
        # what starts works; what is idle does, too: an idle Spark as much as a start within some minutes
        works = [int(min(program.cpu_s, START_CPU_S) / 2) for program in self._programs.values()]
        tables = [self.commits(kind) for kind in ("landing", "fleet")]
        return shown, works, tables, self.batches()

    def _await(self, holds: Callable[[], object], what: str, poll_s: float = 0.1) -> None:
        def look() -> object:
            self.check()
            return holds()

        wait_until(look, what, STILL_S, self.progress, poll_s)

    def _removed(self) -> bool:
        """Removing it ships open windows. A flow with a slot that is starting again does not stop, and says so."""
        answer = self.tell(self.daemon, f"flows/{FLOW}", b"", f"flows/{FLOW}/state")
        assert answer["accepted"] or "try again" in str(answer), answer
        return bool(answer["accepted"])

    def _connected(self) -> None:
        both = "both connections"
        self.daemon.wait(lambda s: s["ingest"]["connected"] and s["central"]["connected"], both, STILL_S)

    def _later(self) -> dict[str, Any]:
        """A status of which all is younger than this call."""
        connected = self.daemon.wait(lambda s: s["ingest"]["connected"], "the connection", STILL_S)
        since = connected["uptime_s"] + FRESH_S
        return self.daemon.wait(lambda s: s["ingest"]["connected"] and s["uptime_s"] > since, "a status", STILL_S)

    def _taken(self) -> None:
        """Waits until the broker has nothing for the gateway: a message that is sent now is the very next to come."""
        gateway = self.daemon
        for _ in range(20):
            before = self._later()["ingest"]["messages"]
            self.publisher.more()
            came = gateway.wait(lambda s: s["ingest"]["messages"] > before, "the last message", STILL_S)  # noqa: B023
            self._later()
            status = gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements", STILL_S)
            if came["ingest"]["messages"] == status["ingest"]["messages"] == before + 1:
                return
        raise AssertionError("the sensors' broker still has messages for the gateway")

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
        if self.heard is not None:
            self.heard.close()
        self.peer.close()
        self.routes.close()
        if "fleet job" in self._programs:
            self.job.close()
        if self.cluster is not None:
            self.cluster.close()
        super().close()
        for broker in self.brokers.values():
            broker.kill()
        for hop in self.hops.values():
            hop.close()
        self._loop.close()

    # -- what faults do

    def program(self, name: Program) -> Process:
        return self._programs[name]

    @property
    def job(self) -> Job:
        job = self._programs["fleet job"]
        assert isinstance(job, Job)
        return job

    def clock_file(self, name: Program) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.clock"

    @property
    def database(self) -> Path:
        return self.daemon.data / "gateway.db"

    def tables_of(self, kind: str) -> list[str]:
        """The flow's landing or fleet tables that there are, by their path under the root."""
        logs = (self.tables / kind).glob("*/_delta_log")
        return [f"{kind}/{log.parent.name}" for log in logs if any(log.glob("*.json"))]

    def commits(self, kind: str) -> int:
        """How many commits the logs of these have."""
        return len(list((self.tables / kind).glob("*/_delta_log/*.json")))

    def batches(self) -> int:
        """How many the fleet job has finished, as its checkpoints say."""
        files = (self.tables / "_spark" / "fleet").glob("*/commits/*")
        return sum(1 for file in files if file.name.isdigit())

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """Those of the flow's landing tables that count, or all of its fleet tables."""
        read = self.landed if kind == "landing" else lambda flow: self.table(f"fleet/{flow}")
        rows = (row for table in self.tables_of(kind) for row in read(table.partition("/")[2]))
        return [row for row in rows if row.get("gateway") in (self.daemon.name, None)]

    def status(self) -> dict[str, Any]:
        """What the gateway's page says; empty while there is none."""
        return self.daemon.status() if self.daemon.running else {}

    def end(self, name: Program, in_order: bool = False) -> bool:
        """SIGKILL, or SIGTERM if `in_order`; false if it is down already."""
        if name not in self._wanted:
            return False
        self.check()
        self._wanted.remove(name)
        if in_order:
            self._stop(name)
        else:
            self.program(name).kill()
        return True

    def _stop(self, name: Program) -> None:
        program = self.program(name)
        # Python has not said yet what it does on SIGTERM while it starts
        expected = {0} if program.handles(signal.SIGTERM) else {0, -signal.SIGTERM}
        assert program.process is not None
        program.process.send_signal(signal.SIGTERM)
        program.process.send_signal(signal.SIGCONT)  # if it sleeps
        self._gone(name, "stop")
        status = program.process.returncode
        assert status in expected, f"the {name} was stopped, and ended with {status}: {program.text()[-1500:]}"

    def _gone(self, name: Program, what: str) -> None:
        program = self.program(name)
        wait_until(lambda: not program.running, f"the {what} of the {name}", STILL_S, lambda: int(program.cpu_s))

    def end_job(self, kill: Callable[[], object]) -> bool:
        """By killing a part of the fleet job: `kill`, which may say that there was nothing to kill. What is left of it
        must end by itself, which `begin` waits for."""
        if "fleet job" not in self._wanted:
            return False
        self.check()
        if kill() is False:
            return False
        self._wanted.remove("fleet job")
        return True

    def begin(self, name: Program) -> None:
        """Starts it, if it is down."""
        if name not in self._wanted:
            if self.program(name).running:
                self._gone(name, "end")
            self.program(name).start()
            self._wanted.add(name)

    def end_broker(self, name: BrokerName, forget: bool = False) -> bool:
        """SIGKILL; false if it is down already. What the sensors' broker knew then is on its disk."""
        broker = self.brokers[name]
        if not broker.running:
            return False
        if name == "sensors":
            self.publisher.pause()
            self.hops["sensors"].cut()
            time.sleep(QUIET_S)
            broker.save()
        broker.kill()
        if forget:
            broker.forget()
        return True

    def begin_broker(self, name: BrokerName) -> None:
        """Starts it, if it is down."""
        broker = self.brokers[name]
        if not broker.running:
            broker.start()
            if name == "sensors":
                self.hops["sensors"].mend()
                self.publisher.resume()

    def check(self) -> None:
        """AssertionError if something of ours ended though nobody killed it."""
        for name, program in self._programs.items():
            if name in self._wanted and not program.running:
                raise AssertionError(f"the {name} ended by itself: {program.text()[-1500:]}")
        if self.upkeep is not None and not self.upkeep.running:
            raise AssertionError(f"upkeep ended by itself: {self.upkeep.text()[-1500:]}")
        if self.cluster is not None and not self.cluster.running:
            raise AssertionError(f"the cluster ended by itself: {self.cluster.text()[-1500:]}")
