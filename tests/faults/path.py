"""The whole path up to the landing table, as processes: what faults are done to.

publisher ──▶ sensors' broker ──hop──▶ gateway (slots) ──hop──▶ central broker ──hop──▶ collector ──▶ tables
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any, Literal

from edgert.flow.delivery import Delivery
from tests.brokers import Broker, mosquitto
from tests.faults import clocks
from tests.faults.links import HopName
from tests.faults.plan import Plan
from tests.faults.proxy import Hop, Loop
from tests.faults.publisher import FLOW, Publisher, document
from tests.integration.rig import Gateway, Process, Rig

Program = Literal["gateway", "collector", "fleet job"]
BrokerName = Literal["sensors", "central"]
UNLIMITED = "max_queued_messages 0\nmax_inflight_messages 0"
QUIET_S = 0.3
"""So long after its clients were cut off a broker has read what they had sent."""
FRESH_S = 0.6
"""What the page shows may be half a second old."""
STOP_S = 40.0
"""A gateway that stops waits for its flows, its slots and its connections."""
CONNECT_S = 150.0
"""A busy machine takes its time to start a process, and the central connection tries again after up to 60 s."""


class WholePath(Rig):
    """Started by `start`; `close` ends all that runs."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.brokers: dict[BrokerName, Broker] = {}
        for name in ("sensors", "central"):
            (folder / name).mkdir()
            self.brokers[name] = mosquitto(folder / name, persistence=True, settings=UNLIMITED)
        super().__init__(folder, self.brokers["central"])
        self._loop = Loop()
        sensors, central = self.brokers["sensors"].port, self.brokers["central"].port
        targets: dict[HopName, int] = {"sensors": sensors, "uplink": central, "collector": central}
        self.hops = {name: Hop(self._loop, target) for name, target in targets.items()}
        ports = self.hops["sensors"].port, self.hops["uplink"].port
        env = clocks.environment(self.clock_file("gateway"))
        self.daemon = Gateway(folder, "g1", *ports, {"pool": plan.pool}, env)
        self.processes.append(self.daemon)
        env = clocks.environment(self.clock_file("collector"))
        self._programs: dict[Program, Process] = {
            "gateway": self.daemon,
            "collector": self.collector(self.hops["collector"].port, env),
        }
        if plan.spark:
            arguments = ["edgert.cli.main", "central", "run", "--root", str(self.tables), "--trigger-s", "1"]
            job = self._programs["fleet job"] = Process(arguments, folder / "fleet-job.log")
            self.processes.append(job)
        self._wanted: set[Program] = set()
        self._plan = plan
        self._publisher: Publisher | None = None

    # -- life

    def start(self) -> None:
        """Returns when the flow runs; nothing is published yet."""
        for broker in self.brokers.values():
            broker.start()
        for program in self._programs:
            self.begin(program)
        self._connected()
        answer = self.deploy(self.daemon, document(self._plan.interval_s, self.delivery))
        assert answer["accepted"], answer
        self._publisher = Publisher(self.brokers["sensors"].port, self._plan.rate, self._plan.duration_s)

    @property
    def delivery(self) -> Delivery:
        """Of the flow."""
        return self._plan.delivery

    @property
    def publisher(self) -> Publisher:
        assert self._publisher is not None
        return self._publisher

    def settle(self) -> None:
        """After all faults are healed: waits until all that was published has landed, open windows included."""
        self.publisher.finish()
        gateway = self.daemon
        self._connected()
        self._taken()
        self._remove()
        self.drained(gateway, 120.0)

    def _remove(self) -> None:
        """Ships open windows. A flow with a slot that is starting again does not stop, and says to try again."""
        for _ in range(5):
            answer = self.tell(self.daemon, f"flows/{FLOW}", b"", f"flows/{FLOW}/state")
            if answer["accepted"]:
                return
            time.sleep(1.0)
        raise AssertionError(f"the flow could not be removed: {answer}")

    def _connected(self) -> None:
        both = "both connections"
        self.daemon.wait(lambda s: s["ingest"]["connected"] and s["central"]["connected"], both, CONNECT_S)

    def _taken(self) -> None:
        """Waits until the broker has nothing for the gateway: a message that is sent now is the very next to come."""
        gateway = self.daemon
        for _ in range(20):
            time.sleep(FRESH_S)
            before = gateway.wait(lambda s: s["ingest"]["connected"], "the connection", CONNECT_S)["ingest"]["messages"]
            self.publisher.one_more()
            came = gateway.wait(lambda s: s["ingest"]["messages"] > before, "the last message", 60.0)  # noqa: B023
            time.sleep(FRESH_S)
            status = gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements", 60.0)
            if came["ingest"]["messages"] == status["ingest"]["messages"] == before + 1:
                return
        raise AssertionError("the sensors' broker still has messages for the gateway")

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
        super().close()
        for broker in self.brokers.values():
            broker.kill()
        for hop in self.hops.values():
            hop.close()
        self._loop.close()

    # -- what faults do

    def program(self, name: Program) -> Process:
        return self._programs[name]

    def clock_file(self, name: Program) -> Path:
        return self.folder / f"{name}.clock"

    @property
    def database(self) -> Path:
        return self.daemon.data / "gateway.db"

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
            status = self.program(name).terminate(STOP_S)
            # one that is still starting has not said yet what it does on SIGTERM
            log = self.program(name).text()[-1500:]
            assert status in (0, -signal.SIGTERM), f"the {name} was stopped, and ended with {status}: {log}"
        else:
            self.program(name).kill()
        return True

    def begin(self, name: Program) -> None:
        """Starts it, if it is down."""
        if name not in self._wanted:
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
