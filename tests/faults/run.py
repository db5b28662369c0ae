"""One seed: the path is started, the plan carried out, and the table compared with what was published."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import keeping, repetitions, untimed
from tests.faults.fault import NOTHING
from tests.faults.path import WholePath
from tests.faults.plan import Plan
from tests.faults.publisher import Difference, compare
from tests.integration.harms import messages_said


@dataclass(slots=True)
class Outcome:
    """What came of a seed."""

    plan: Plan
    told: list[str] = field(default_factory=list)
    """What was done when, in seconds after the first message."""
    injected: Counter[str] = field(default_factory=Counter)
    """Kind → faults that had something to be done to."""
    difference: Difference = field(default_factory=Difference)
    problems: list[str] = field(default_factory=list)
    messages: int = 0
    took_s: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    """How long each took, in s."""
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return bool(self.difference or self.problems)

    def as_dict(self) -> dict[str, Any]:
        """For a summary in JSON."""
        return {
            "seed": self.plan.seed,
            "spark": self.plan.spark,
            "delivery": self.plan.delivery,
            "ok": not self.failed,
            "lost": self.difference.lost,
            "doubled": self.difference.doubled,
            "messages": self.messages,
            "took_s": round(self.took_s, 1),
            "phases_s": self.phases,
            "faults": dict(self.injected),
            "figures": self.figures,
            "problems": [*self.problems, *self.difference.windows],
        }

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {n}" for name, n in self.figures.items())
        d = self.difference
        verdict = "FAILED" if self.failed else "ok"
        head = f"seed {self.plan.seed}: {verdict}: lost {d.lost}, doubled {d.doubled} of {self.messages:,} messages"
        phases = ", ".join(f"{name} {took_s:.0f}" for name, took_s in self.phases.items())
        faults = f"{self.injected.total()} of {len(self.plan.injections)} faults"
        head += f" in {self.took_s:.0f} s ({phases}); {faults}; {figures}"
        return "\n".join([head, *(f"  {line}" for line in (*self.problems, *d.windows[:20]))])


def run(plan: Plan, folder: Path) -> Outcome:
    """Carries out a plan in an empty folder, in which logs and tables stay."""
    outcome = Outcome(plan)
    started = time.monotonic()
    path = WholePath(folder, plan)
    try:
        for phase, do in (
            ("start", path.start),
            ("faults", lambda: _carry_out(plan, path, outcome)),
            ("settle", path.settle),
            ("judge", lambda: _judge(plan, path, outcome)),
        ):
            began = time.monotonic()
            do()
            outcome.phases[phase] = round(time.monotonic() - began, 1)
    except Exception as error:  # noqa: BLE001 - a seed that fails must not end the others
        outcome.problems.append(f"{type(error).__name__}: {error}")
    finally:
        path.close()
    outcome.took_s = time.monotonic() - started
    (folder / "outcome.txt").write_text("\n".join([str(plan), "what was done:", *outcome.told, str(outcome), ""]))
    return outcome


def _carry_out(plan: Plan, path: WholePath, outcome: Outcome) -> None:
    events = [(i.at, i.fault, True) for i in plan.injections]
    events += [(i.at + i.fault.length_s, i.fault, False) for i in plan.injections if i.fault.length_s]
    path.publisher.start()
    started = time.monotonic()
    for at, fault, begins in sorted(events, key=lambda event: event[0]):
        time.sleep(max(0.0, started + at - time.monotonic()))
        path.check()
        if begins:
            did = fault.inject(path)
            outcome.injected[fault.name] += not did.startswith(NOTHING)
        else:
            fault.heal(path)
            did = "healed"
        outcome.told.append(f"{time.monotonic() - started:6.2f} s: {fault.name}: {did}")


def _judge(plan: Plan, path: WholePath, outcome: Outcome) -> None:
    path.check()
    outcome.messages = path.publisher.sent
    outcome.difference = _in_landing(path)
    if plan.delivery == "at-least-once":
        foreseen = repetitions.foreseen(path.database)
        most = repetitions.most_messages(path.rows("landing"), foreseen)
        outcome.told.append(f"foreseen as repeated: {foreseen} rows with {most} messages at most")
        if outcome.difference.doubled > most:
            outcome.problems.append(
                f"doubled: {outcome.difference.doubled} messages, and {most} at most were foreseen ({foreseen} rows)"
            )
    status, landing = path.daemon.now(), path.tables_of("landing")
    ingest = status["ingest"]
    outcome.told += [f"place: {answer}" for answer in path.placed]
    outcome.told += [f"counted as dropped: {drop}" for drop in status["drops"]]
    if (path.tables / "drops").exists():
        outcome.told += [
            f"said of drops: {row['operator']}, {row['reason']}: {row['count']}" for row in path.table("drops")
        ]
    outcome.problems += too_few(plan, len(path.plans))
    outcome.figures = {
        **({"plans": len(path.plans)} if plan.least_plans else {}),
        "redelivered": ingest["redelivered"],
        "ambiguous": ingest["ambiguous"],
        "failed checkpoints": status["checkpoint"]["failures"],
        "packets tampered with": sum(hop.tampered for hop in path.hops.values()),
        "epochs": len({row["epoch"] for table in landing for row in path.table(table)}),
        "landing tables": len(landing),
    }
    if plan.spark and not outcome.difference:
        try:
            path.settled(lambda: not _in_fleet(path), "the fleet table")
        except AssertionError as error:  # and what differs is told
            outcome.problems.append(str(error))
        outcome.difference = _in_fleet(path)
        path.check()
        outcome.figures["batches since the checkpoint was new"] = path.batches()
        if plan.many:
            begun, done = path.job.large_batches()
            outcome.figures |= {"large batches": begun, "of these done": done}
    if path.upkeep is not None:
        kept = keeping.figures(path.upkeep.text())
        outcome.figures |= kept
        if not kept["tables kept"]:
            outcome.problems.append(f"upkeep kept no table: {path.upkeep.text()[-1500:]}")
    if ingest["sessions_lost"]:
        outcome.problems.append(f"the session with the sensors' broker was lost {ingest['sessions_lost']} times")
    gaps, quarantined = _said(path, "gaps"), _said(path, "quarantine")
    if plan.scene == "harmed":
        texts = [row["text"] for row in gaps]
        outcome.problems += path.harms.problems(path.daemon.now(), path.daemon.text(), outcome.difference, texts)
        outcome.figures |= {"lost": outcome.difference.lost, "said": messages_said(texts)}
        outcome.figures |= {"dropped": path.harms.dropped}
        outcome.difference, gaps = Difference(), []
    if path.heard is not None:
        outcome.problems += path.heard.problems(path.publisher, path.daemon.now(), path.daemon.text())
        outcome.figures |= {f"hang-ups, {name}": hop.hung_up for name, hop in path.hops.items() if hop.hung_up}
    if plan.scene == "hostile":
        outcome.problems += path.peer.problems()
        outcome.figures |= {"acknowledgements": path.peer.acknowledged, "ms": round(1e3 * path.peer.slowest_cpu_s)}
        quarantined = []  # whatever the peer wrote
    outcome.problems += [f"{row}" for row in (*gaps[:5], *quarantined[:5])]
    if not outcome.difference and plan.scene != "harmed":
        path.stop()
        outcome.difference = _in_landing(path)
        if plan.spark and not outcome.difference:
            outcome.difference = _in_fleet(path)
        if outcome.difference:
            outcome.problems.append("the tables were right, and were written wrongly before all had ended")


def _said(path: WholePath, table: str) -> list[dict[str, Any]]:
    """Rows of a table for all flows, of the honest gateway."""
    rows = path.table(table) if (path.tables / table).exists() else []
    return [row for row in rows if row["gateway"] == path.daemon.name]


def too_few(plan: Plan, changes: int) -> list[str]:
    """The problem of a seed with fewer changes of plan than it needs to show anything."""
    if changes >= plan.least_plans:
        return []
    return [f"expected at least {plan.least_plans} changes of plan, got {changes}: the seed shows nothing"]


def _in_landing(path: WholePath) -> Difference:
    """Between what was published and what the landing tables say now."""
    how = repetitions.compare if path.delivery == "at-least-once" else compare
    if isinstance(path.publisher, untimed.UntimedPublisher):
        how = untimed.compare
    return how(path.publisher.truth, path.rows("landing"))


def _in_fleet(path: WholePath) -> Difference:
    """Between what was published and what the fleet tables say now."""
    return compare(path.publisher.truth, path.rows("fleet"))
