"""One application under one load, set up as a gateway does it: a process of its own, which says as JSON, a line a
second, how it stands, and at the end what became of the rows."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import psutil

from benchmarks.overload.measure import OVERLOADS
from benchmarks.overload.offer import Offer
from benchmarks.overload.watch import WatchedPool, ledger
from benchmarks.riotbench.engine import LEND_S, Seen, outcome, waiting_in
from benchmarks.riotbench.flows import APPLICATIONS
from edgert.core.checkpoint.position import Position
from edgert.core.settings.gateway import GatewaySettings
from edgert.core.system_clock import SystemClock
from edgert.flow.document import from_plain
from edgert.operators.base.logic import PlainMessage
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.scheduling.consumption import CONSUMPTIONS
from edgert.scheduling.policies import POLICIES

LOOK_S: Final = 1.0
REST_S: Final = 60.0
"""How long a turn under way, or all that is queued, may take at the end."""
Say = Callable[[dict[str, Any]], None]


class Engine:
    """A flow with the budgets that its document has by default, under the gateway's own pool. Branches are apart, as
    they are in a flow that tries rows again: else there would be no queue but the source's."""

    def __init__(self, application: str, overload: str) -> None:
        plain = APPLICATIONS[application]()
        for operator in plain["operators"].values():
            if operator["type"] == "mqtt_source":
                operator["overload"] = overload
        self.run = FlowRun(from_plain(plain, REGISTRY), REGISTRY, 1, 1, Progress(Position()), "lines")
        settings = GatewaySettings().pool
        self.pool = WatchedPool(
            SystemClock(),
            workers=settings.workers,
            policy=POLICIES[settings.policy](random.random),
            consumption=CONSUMPTIONS[settings.consumption](settings.consumption_rows),
            send=self._send,
        )
        self.pool.add(self.run.all)
        self.sources = [instance for _, copies in self.run.sources() for instance in copies]
        self.fed = 0
        self.sent: Counter[str] = Counter()
        """By instance: one count for all would lose some when two threads add to it."""

    def _send(self, instance: Instance, sent: Sequence[PlainMessage]) -> None:
        self.sent[instance.name] += len(sent)

    @property
    def done(self) -> int:
        """Messages that the sources have taken from their queues and worked on."""
        return sum(source.counters.rows_in for source in self.sources)

    def feed(self, offer: Offer, warm_up: float, seconds: float, say: Say) -> dict[str, Any]:
        """Feeds what is due; what happened after the warm-up. As in the gateway the thread that has fed works on it for
        a while, if nothing more is due."""
        memory = psutil.Process().memory_info
        at_first = memory().rss
        before: Seen | None = None
        fed = done = 0
        began = looked = time.monotonic()
        for batch in offer.due(warm_up + seconds):
            self.pool.put([(source, 0, batch) for source in self.sources], wake=False)
            self.fed += len(batch)
            if not offer.waiting:
                self.pool.lend(LEND_S)
            now = time.monotonic()
            if before is None and now - began >= warm_up:
                before, fed, done = Seen(self.run, [0]), self.fed, self.done
            if now - looked >= LOOK_S:
                looked = now
                self.pool.profile()  # as often as a gateway does
                say(self._stand(now - began, memory().rss))
        assert before is not None
        after = Seen(self.run, [0])
        passed = after.at - before.at
        rates = {"fed_per_s": (self.fed - fed) / passed, "done_per_s": (self.done - done) / passed}
        told = outcome(before, after, self.done - done, self.run, 0, waiting_in(self.pool, self.run))
        return told | rates | {"rss_before_mb": at_first / 1e6}

    def _stand(self, at: float, rss: int) -> dict[str, Any]:
        inner = [instance.queue.size for instance in self.run.all if instance not in self.sources]
        return {
            "at": round(at, 2),
            "rss_mb": rss / 1e6,
            "source_mb": max(source.queue.size for source in self.sources) / 1e6,
            "inner_mb": max(inner, default=0) / 1e6,
            "fed": self.fed,
            "done": self.done,
        }

    def close(self) -> dict[str, Any]:
        """What became of every row: at a batch boundary with all that waits where it is, and again when nothing waits
        any more."""
        everything = self.run.all
        if not self.pool.hold(everything, REST_S):
            raise TimeoutError(f"expected every turn to end within {REST_S:g} s")
        under_way = ledger(self.run, self.fed, self.sent)
        self.pool.release(everything)
        if not self.pool.wait_empty(everything, REST_S):
            raise TimeoutError(f"expected the queues to be empty within {REST_S:g} s")
        self.pool.stop()
        return {
            "under_way": under_way,
            "at_end": ledger(self.run, self.fed, self.sent),
            "fullness": self.pool.fullness(self.run),
        }


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser("engine")
    parser.add_argument("--application", choices=APPLICATIONS, required=True)
    parser.add_argument("--overload", choices=OVERLOADS, default=OVERLOADS[0])
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--tick", type=float, default=0.005, help="seconds between two batches")
    parser.add_argument("--warm-up", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()

    def say(told: dict[str, Any]) -> None:
        print(json.dumps(told), flush=True)

    engine = Engine(given.application, given.overload)
    engine.pool.start()
    result = engine.feed(Offer(given.rate, given.tick), given.warm_up, given.seconds, say)
    say({"result": result | engine.close()})


if __name__ == "__main__":
    main()
