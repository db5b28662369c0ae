"""The demo from start to end: children up, flow deployed, summary shown, everything ended in order."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import FrameType

from edgert.core.errors import DocumentError, EdgertError
from edgert.core.ids import short
from edgert.core.settings.connection import Connection
from edgert.demo import fleet
from edgert.demo.achieved import FleetWrites, sensors_fault
from edgert.demo.broker import READY
from edgert.demo.children import Child, ChildError, stop_all
from edgert.demo.observe import ROWS, STATUS_PERIOD_S, TABLE_PERIOD_S, FleetRows, Watcher, fetch_status
from edgert.demo.screen import DemoStage, StepState, View
from edgert.demo.setup import FLEET, Options, Setup, child_environment, commands, further, lock, prepare
from edgert.demo.show import Display, make_display
from edgert.mqtt.clients.deployment import Deployment

TICK_S = 0.25
ANSWER_S = 30.0
"""Longest wait for the gateway's answer to the flow, once it is connected."""
FIRST_SPARK_S = 80.0
"""From Spark's start to the first fleet rows on a machine that never ran it (78 s, on two cores)."""
STOP_ORDER = ("publisher", "gateway", "collector", "spark", "broker")
STAGES = ("broker", "gateway", "boards", "flow", "publisher", "collector", "spark")
"""The stages that are shown, in the order of the data."""
TITLES = {
    "broker": "MQTT broker",
    "gateway": "gateway",
    "collector": "collector",
    "spark": "Spark job",
    "publisher": "sensors",
}


PARTS = {"broker": "sensors", "gateway": "checkpoint", "flow": "flow", "collector": "central"}
"""Part of the gateway's `health` by stage."""


class Demo:
    """One run. `tick` moves it on; nothing in it waits."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        env = child_environment(os.environ)
        self.boards = fleet.boards(setup)
        fleet.write(setup, self.boards)
        run = commands(setup) | fleet.commands(setup, self.boards)
        self.children = {
            name: Child(TITLES.get(name, name), command, setup.logs / f"{name}.log", env, setup.data)
            for name, command in run.items()
        }
        self._beside = [name for name in self.children if name not in TITLES]
        """Gateways but the first, and agents."""
        titles = {**TITLES, "flow": f"flow {setup.flow_name}", "boards": f"{len(self.boards)} boards"}
        self.stages = {
            name: DemoStage(titles[name], part=PARTS.get(name, ""))
            for name in STAGES
            if name != "boards" or self.boards
        }
        self._spark_took_s = setup.spark_took_s()
        self._began = time.monotonic()
        self._deployment: Deployment | fleet.FleetDeployment | None = None
        self._asked_at = 0.0
        urls = {board.gateway: board.url for board in self.boards} or {setup.gateway: setup.url}
        self._statuses = {
            gateway: Watcher(partial(fetch_status, url), STATUS_PERIOD_S, f"status of {gateway}")
            for gateway, url in urls.items()
        }
        """Watchers by gateway: the first has the sensors, the last ships."""
        watchers = list(self._statuses.values())
        self._status, self._shipping = watchers[0], watchers[-1]
        self._writes = FleetWrites()
        self._fleet = Watcher(self._read_fleet, TABLE_PERIOD_S, "fleet")
        self._first_version: int | None = None

    # ---- what is seen ----

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def view(self, note: str = "") -> View:
        setup = self.setup
        return View(
            elapsed_s=self.elapsed_s,
            url=setup.url,
            broker=setup.broker,
            gateway=setup.gateway,
            stages=tuple(self.stages.values()),
            flow=setup.flow_name,
            status=self._status.value or {},
            others={name: one.value for name, one in self._statuses.items() if one is not self._status and one.value},
            fleet=self._fleet.value or FleetRows(),
            note=note,
            problem=self._problem(),
        )

    def _problem(self) -> str:
        """Why a gateway that has answered before does not answer."""
        silent = {name: one.problem for name, one in self._statuses.items() if one.problem and one.value}
        return "; ".join(f"{name}: {why}" for name, why in silent.items()) if self.boards else "".join(silent.values())

    def _read_fleet(self) -> FleetRows:
        from edgert.central.tables.peek import newest_rows

        found = newest_rows(str(self.setup.tables / "fleet" / self.setup.flow_name), ROWS)
        if found is None:
            return FleetRows()
        columns, rows, total, version = found
        return FleetRows(columns, tuple(rows), total, version)

    def last_look(self) -> FleetRows:
        """The fleet table after the end: the job may have written once more."""
        try:
            return self._read_fleet()
        except Exception:  # noqa: BLE001 - a table that cannot be read must not spoil the end
            return self._fleet.value or FleetRows()

    def _fleet_has_moved(self) -> bool:
        """True if the fleet table was written since this start."""
        fleet = self._fleet.value
        if fleet is None:
            return False
        if self._first_version is None:
            self._first_version = fleet.version
        return bool(fleet.version > self._first_version and fleet.total)

    # ---- the way up ----

    def tick(self) -> None:
        """Starts what is due and notes what has become ready. Raises `ChildError`, `DocumentError`."""
        self._check_children()
        if self._broker_is_ready():
            for name in ("gateway", "collector", "spark"):
                self._start(name)
            self._start_boards()
            self._gateway()
            self._flow()
            self._central()
            self._judge()

    def _start(self, name: str) -> None:
        if self.stages[name].state == "waiting":
            self.children[name].start()
            self._set(name, "starting")
            if name == "gateway":
                for watcher in self._statuses.values():
                    watcher.start()
            elif name == "spark":
                self._fleet.start()

    def _start_boards(self) -> None:
        """Gateways beside the first, and the agents."""
        if self.boards and self.stages["boards"].state == "waiting":
            for name in self._beside:
                self.children[name].start()
            self._set("boards", "starting", "find each other")

    def _set(self, name: str, state: StepState, text: str = "") -> None:
        self.stages[name].state, self.stages[name].text = state, text

    def _check_children(self) -> None:
        for name, child in self.children.items():
            if child.status() is None:
                continue
            if name == "publisher" and child.status() == 0:
                self._set(name, "ended", "the trace is at its end")
                continue
            raise ChildError(child.obituary())

    def _broker_is_ready(self) -> bool:
        setup, state = self.setup, self.stages["broker"].state
        if state == "ready":
            return True
        if state == "waiting" and "broker" in self.children:
            self.children["broker"].start()
        if "broker" in self.children:
            why = "" if READY in self.children["broker"].last_lines() else "it starts"
        else:
            why = _no_answer(setup.broker_host, setup.broker_port)
        if why:
            self._set("broker", "starting", f"{setup.broker} does not answer yet: {why}")
        else:
            self._set("broker", "ready", setup.broker)
        return not why

    def _gateway(self) -> None:
        status = self._status.value
        if self.stages["gateway"].state != "starting" or status is None:
            return
        if status["ingest"]["connected"]:
            self._set("gateway", "ready", f"{self.setup.gateway}, page on {self.setup.url}")
        else:
            self.stages["gateway"].text = f"connecting {status['ingest']['error']}".strip()

    def _flow(self) -> None:
        stage = self.stages["flow"]
        if stage.state == "waiting" and self.stages["gateway"].state == "ready":
            self._deployment = self._deploy()
            self._asked_at = time.monotonic()
            how = "through the agents" if self.boards else "over MQTT"
            self._set("flow", "starting", f"deployed {how}, waiting for the answer")
        elif stage.state == "starting" and self._deployment is not None:
            self._take_answer(self._deployment)
        if stage.state == "ready":
            if self.stages["publisher"].state == "waiting":
                self.children["publisher"].start()
                self._set("publisher", "starting")
            elif self.stages["publisher"].state == "starting" and self._status.value["ingest"]["messages"]:
                trace = self.setup.options.trace
                what = f"{trace.name}, {self.setup.options.rate:g}/s" if trace else "this machine's, once a second"
                self._set("publisher", "ready", what)

    def _deploy(self) -> Deployment | fleet.FleetDeployment:
        """Deploys the flow as a user would: by a retained document over MQTT, or for several boards by one of their
        agents."""
        setup = self.setup
        if self.boards:
            through_agents = fleet.FleetDeployment(setup, self.boards)
            through_agents.start()
            return through_agents
        broker = Connection(host=setup.broker_host, port=setup.broker_port, protocol=setup.protocol)
        document = setup.document.encode()
        client_id = f"edgert-demo-{os.getpid()}"
        deployment = Deployment(
            broker, client_id, FLEET, setup.flow_name, document, gateway=setup.gateway, written=os.urandom(8)
        )
        deployment.start()
        return deployment

    def _take_answer(self, deployment: Deployment | fleet.FleetDeployment) -> None:
        answer = deployment.answer
        if answer is not None and not answer.accepted:
            raise DocumentError(f"the gateway refused flow {self.setup.flow_name}", answer.problems)
        if answer is not None and self.boards:
            self._set("boards", "ready", ", ".join(f"{board.gateway} {board.url}" for board in self.boards))
            self._set("flow", "ready", f"runs over {len(self.boards)} boards by plan {short(answer.version or 0)}")
        elif answer is not None:
            self._set("flow", "ready", f"version {answer.version} is accepted and runs")
        elif time.monotonic() - self._asked_at > (fleet.ANSWER_S if self.boards else ANSWER_S):
            log = self.children["gateway"].log
            raise EdgertError(f"expected the gateway's answer to the flow within {ANSWER_S:g} s, got none; see {log}")

    def _central(self) -> None:
        status = self._shipping.value
        if self.stages["collector"].state == "starting" and status and status["central"]["last_ack_age_s"] is not None:
            self._set("collector", "ready", "lands results, acknowledges")
        spark = self.stages["spark"]
        if spark.state == "starting":
            waited = time.monotonic() - self.children["spark"].started_at
            spark.text = progress(waited, self._spark_took_s)
            if self._fleet_has_moved():
                self.setup.note_spark_took(waited)
                self._set("spark", "ready", f"keeps table {self.setup.tables / 'fleet' / self.setup.flow_name}")

    def _judge(self) -> None:
        """Sensors and Spark job by what they achieved lately."""
        sensors, spark, options = self.stages["publisher"], self.stages["spark"], self.setup.options
        sensors.fault = spark.fault = ""
        if sensors.state == "ready" and not self._status.problem:
            sensors.fault = sensors_fault(self._status.value["ingest"], options.rate if options.trace else 1.0)
        if spark.state == "ready":
            acknowledged, version = self._shipping.value["central"]["acknowledged"], self._fleet.value.version
            spark.fault = self._writes.fault(acknowledged, version, time.monotonic())

    # ---- the way down ----

    def stop(self, hurry: threading.Event) -> list[str]:
        """Ends everything; returns who had to be killed."""
        watchers = [*self._statuses.values(), self._fleet]
        for watcher in watchers:
            watcher.stop()
        if self._deployment is not None:
            self._deployment.close()
        order = [*STOP_ORDER[:1], *reversed(self._beside), *STOP_ORDER[1:]]
        ordered = [self.children[name] for name in order if name in self.children]
        killed = stop_all(ordered, hurry.is_set)
        for watcher in watchers:
            watcher.join()
        return killed


def progress(waited_s: float, took_s: float | None) -> str:
    """Returns how far a start of Spark is, until the first rows are in the fleet table. `took_s`: the last start; None:
    this is the first one."""
    expected = took_s or FIRST_SPARK_S
    done = min(9, int(10 * waited_s / expected))
    bar = "█" * done + "░" * (10 - done)
    if waited_s > 2 * expected:
        return f"{bar} {waited_s:.0f} s, slower than expected ({expected:.0f} s): see logs/spark.log"
    why = "as the last time" if took_s else "the first time: it fetches jars"
    return f"{bar} {waited_s:.0f} of some {expected:.0f} s to the first fleet rows ({why})"


def _no_answer(host: str, port: int) -> str:
    """The reason why no connection is accepted there; empty where one is."""
    try:
        socket.create_connection((host, port), 1).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


@contextlib.contextmanager
def signals(stopping: threading.Event, hurry: threading.Event) -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP asks to stop, the second not to wait for anything."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stopping.is_set():
            hurry.set()
        stopping.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, handle) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def run(options: Options) -> int:
    """Runs the demo until it is told to stop; returns the exit status. Raises `EdgertError` before anything starts."""
    stopping, hurry = threading.Event(), threading.Event()
    with lock(options.data), signals(stopping, hurry):
        setup = prepare(options)
        _greeting(setup)
        demo = Demo(setup)
        display = make_display(options.plain)
        problem = _until_stopped(demo, display, stopping)
        killed = _end(demo, display, hurry)
    if problem:
        print(f"edgert demo: {problem}", file=sys.stderr)
    _farewell(setup, demo, killed)
    return 1 if problem else 0


def _greeting(setup: Setup) -> None:
    options = setup.options
    if not options.broker and options.broker_port and setup.broker_port != options.broker_port:
        taken = f"{setup.broker_host}:{options.broker_port}"
        print(f"{taken} is taken: our own MQTT broker is on {setup.broker} (--broker {taken} uses another there)")
    else:
        print(f"MQTT broker: {setup.broker}")
    if options.web_port and setup.web_port != options.web_port:
        print(f"port {options.web_port} is taken: the page is on {setup.url}")
    print("Look further, in another terminal:")
    print("\n".join(further(setup, sys.argv[0])), flush=True)


def _until_stopped(demo: Demo, display: Display, stopping: threading.Event) -> str:
    """Returns why it could not go on, or nothing when it was told to stop."""
    try:
        while not stopping.is_set():
            demo.tick()
            display.show(demo.view())
            for_s = demo.setup.options.for_s
            if for_s is not None and demo.elapsed_s >= for_s:
                return ""
            stopping.wait(TICK_S)
    except EdgertError as problem:
        return str(problem)
    return ""


def _end(demo: Demo, display: Display, hurry: threading.Event) -> list[str]:
    display.show(demo.view(note="ending: sensors, gateway, collector, Spark, broker …"), last=True)
    display.close()
    return demo.stop(hurry)


def _farewell(setup: Setup, demo: Demo, killed: list[str]) -> None:
    if killed:
        print(f"did not end within 10 s and was killed: {', '.join(killed)}")
    fleet = demo.last_look()
    if fleet.version >= 0:
        print(f"Fleet table {setup.flow_name} has {fleet.total:,} rows. The first of these shows it without the demo:")
    else:
        print("While the demo runs, look further with:")
    print("\n".join(further(setup, sys.argv[0])))
    print(f"Data and logs are in {setup.data}; the next start goes on from there.")
