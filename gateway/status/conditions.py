"""How each part of the gateway is, from what it achieved lately: one judgement for page, health, commands and demo.

Pure: a status in, conditions out. Levels: `good`; `idle` (nothing to do, nothing wrong); `warning` (somebody should
look); `bad` (a part does not do its work).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from gateway.status.all_dropped import AllDropped

Level = Literal["good", "idle", "warning", "bad"]
LEVELS: Final[tuple[Level, ...]] = ("good", "idle", "warning", "bad")
PAUSED_S: Final = 30.0
"""Reading stops for a moment whenever messages come faster than checkpoints are made; for so long it is a fault."""
UNACKNOWLEDGED_WARNING_S: Final = 30.0
UNACKNOWLEDGED_BAD_S: Final = 60.0
"""Results that wait so long, while not one is acknowledged, wait for a collector that is not there."""
REFUSING_S: Final = 5.0
REFUSED_LEAST: Final = 3
"""A source that took no row for so long, and refused so many payloads, refuses all."""
MIXED_S: Final = 60.0
"""A malformed payload is worth a warning for so long."""
SHOWN_CHARACTERS: Final = 80
TOPICS_TOLD: Final = 3


class Condition(NamedTuple):
    """Of one part."""

    part: str
    """`sensors`, `central`, `checkpoint`, `database`, `slot` or `flow`."""
    name: str
    """Of the flow, or number of the slot."""
    level: Level
    state: str
    """One word or two."""
    reason: str = ""

    def plain(self) -> dict[str, str]:
        return {**self._asdict(), "text": str(self)}

    def __str__(self) -> str:
        what = {"sensors": "sensors' broker", "flow": f"flow {self.name}", "slot": f"slot {self.name}"}
        return f"{what.get(self.part, self.part)}: {self.reason or self.state}"


def conditions(status: Mapping[str, Any]) -> list[Condition]:
    """Of all parts."""
    return [
        _sensors(status.get("ingest", {})),
        _central(status.get("central", {}), str(status.get("fleet", ""))),
        _checkpoint(status.get("checkpoint", {})),
        *_database(status.get("database", {})),
        *_slots(status),
        *(_flow(flow) for flow in status.get("flows", ())),
    ]


def worst(found: list[Condition]) -> Level:
    """Of all levels."""
    return max((condition.level for condition in found), key=LEVELS.index, default="good")


def ago(seconds: float) -> str:
    """A duration for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _sensors(ingest: Mapping[str, Any]) -> Condition:
    broker, error = ingest.get("broker") or "(none)", ingest.get("error", "")
    if not ingest.get("connected"):
        why = "; ".join(filter(None, (ingest.get("failed"), error))) or "no connection yet"
        return Condition("sensors", "", "bad", "disconnected", f"{broker}: {why}")
    found = [f"subscription to {filter_} refused: {why}" for filter_, why in ingest.get("refused", {}).items()]
    if (paused_s := ingest.get("paused_s", 0.0)) >= PAUSED_S:
        found.append(f"nothing is read for {paused_s:.0f} s: what came before is not committed")
    if failed := ingest.get("failed"):
        found.append(failed)
    if found:
        return Condition("sensors", "", "bad", "not reading", "; ".join(found))
    if topics := ingest.get("refused_topics", []):
        told = ", ".join(f"{t['topic']} (flow {t['flow']}, operator {t['operator']})" for t in topics[:TOPICS_TOLD])
        more = f" and {len(topics) - TOPICS_TOLD} more" if len(topics) > TOPICS_TOLD else ""
        error = "; ".join(filter(None, (error, f"nothing is sent to {told}{more}: the broker hangs up at it")))
    if error:
        return Condition("sensors", "", "warning", "connected", error)
    if not ingest.get("messages"):
        return Condition("sensors", "", "idle", "no message yet", f"{broker}: connected, no message has come yet")
    return Condition("sensors", "", "good", "connected")


def _central(central: Mapping[str, Any], fleet: str) -> Condition:
    if not central.get("enabled"):
        return Condition("central", "", "idle", "off")
    broker, error = central.get("broker", ""), central.get("error", "")
    rows, waited = central.get("outbox_rows", 0), central.get("unacknowledged_s") or 0.0
    wait = f"{rows:,} rows wait in the outbox" if rows else "the outbox is empty"
    level: Level = "bad" if waited >= UNACKNOWLEDGED_BAD_S else "warning"
    if not central.get("connected"):
        return Condition("central", "", level, "disconnected", f"{broker}: {error or 'no connection yet'}; {wait}")
    if waited >= UNACKNOWLEDGED_WARNING_S:
        reason = (
            f"{broker}: connected, but no collector has acknowledged a result for {ago(waited)}; {wait}; "
            f"is edgert-collector running there, for fleet {fleet}?"
        )
        return Condition("central", "", level, "no collector", f"{reason} {error}".rstrip())
    if error:
        return Condition("central", "", "warning", "connected", error)
    if central.get("last_ack_age_s") is None:
        return Condition("central", "", "idle", "no result yet", f"{broker}: connected, no result is acknowledged yet")
    return Condition("central", "", "good", "acknowledged")


def _checkpoint(checkpoint: Mapping[str, Any]) -> Condition:
    if error := checkpoint.get("error"):
        return Condition("checkpoint", "", "bad", "failing", error)
    return Condition("checkpoint", "", "good", "committed")


def _database(database: Mapping[str, Any]) -> Iterator[Condition]:
    """None for one that has lost nothing: checkpoints tell how it is."""
    if lost := database.get("lost"):
        yield Condition("database", "", "warning", "lost", lost)


def _slots(status: Mapping[str, Any]) -> Iterator[Condition]:
    for slot in status.get("slots") or ():
        if not slot["running"]:
            yield Condition("slot", str(slot["slot"]), "bad", "does not run", "does not run")


def _flow(flow: Mapping[str, Any]) -> Condition:
    name, state = flow["name"], flow["state"]
    if state == "failed":
        return Condition("flow", name, "bad", "stopped", f"is stopped: {flow['description']}")
    if state == "blocked":
        return Condition("flow", name, "bad", "blocked", "waits for room in the outbox")
    if state == "stuck":
        return Condition("flow", name, "bad", "stuck", "an operator does not end its turn")
    if state != "running":
        return Condition("flow", name, "bad", state, f"is {state}")
    recent = flow.get("recent", {})
    refused, refusing_s = recent.get("refused_since_row", 0), recent.get("refusing_s") or 0.0
    if refused >= REFUSED_LEAST and refusing_s >= REFUSING_S:
        reason = f"refuses all its input: {refused:,} malformed payloads and no row in {ago(refusing_s)}{_sample(flow)}"
        return Condition("flow", name, "bad", "refuses all", reason)
    if dropping := flow.get("dropping"):
        found = [AllDropped.of(each) for each in dropping]
        worst_of = next((each for each in found if each.lasts), found[0])
        return Condition("flow", name, "bad" if worst_of.lasts else "warning", "drops all", str(worst_of))
    return _doubtful(flow, recent) or _at_work(name, recent)


def _doubtful(flow: Mapping[str, Any], recent: Mapping[str, Any]) -> Condition | None:
    found = []
    for missing in flow.get("never_seen", ()):
        fields, seen = ", ".join(missing["fields"]), ", ".join(missing["seen"]) or "none"
        found.append(f"field {fields} never seen; seen: {seen}")
    refused_age_s = recent.get("refused_age_s")
    if refused_age_s is not None and refused_age_s < MIXED_S:
        found.append(f"some payloads are malformed{_sample(flow)}")
    found += [f"may read what it publishes: {way}" for way in flow.get("possible_loops", ())]
    return Condition("flow", flow["name"], "warning", "running", "; ".join(found)) if found else None


def _sample(flow: Mapping[str, Any]) -> str:
    bad = flow.get("malformed")
    if not bad:
        return ""
    beginning = bad["beginning"]
    short = beginning if len(beginning) <= SHOWN_CHARACTERS else f"{beginning[:SHOWN_CHARACTERS]}..."
    return f": {bad['reason'].partition(', got ')[0]}, got {short!r} on {bad['topic']}"


def _at_work(name: str, recent: Mapping[str, Any]) -> Condition:
    if recent and recent.get("row_age_s") is None:
        return Condition("flow", name, "idle", "no input yet", "no row has come yet")
    return Condition("flow", name, "good", "running")
