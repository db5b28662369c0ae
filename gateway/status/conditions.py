"""How each part of the gateway is, from what it achieved lately: one judgement for page, health, commands and demo.

Pure: a status in, conditions out. Levels: `good`; `idle` (nothing to do, nothing wrong); `warning` (somebody should
look); `bad` (a part does not do its work).

One fault is `bad` once, where it is. Flows that suffer from it are a `warning` with that reason, and never `good`. A
source that is connected and silent is no fault: sensors may report once a day. The age of the last row is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from edgert.core.text.conditions import NO_INPUT, RESULTS_WAIT
from edgert.core.text.counted import counted
from gateway.status.all_dropped import AllDropped

Level = Literal["good", "idle", "warning", "bad"]
LEVELS: Final[tuple[Level, ...]] = ("good", "idle", "warning", "bad")
PAUSED_S: Final = 30.0
"""Reading stops for a moment whenever messages come faster than checkpoints are made; for so long it is a fault."""
UNACKNOWLEDGED_WARNING_S: Final = 30.0
UNACKNOWLEDGED_BAD_S: Final = 60.0
"""Results that wait so long, while not one is acknowledged, wait for a collector that is not there."""
CERTIFICATE_ENDS_S: Final = 30 * 86_400.0
"""A certificate that nothing renews is worth a warning then."""
REFUSING_S: Final = 5.0
REFUSED_LEAST: Final = 3
"""A source that took no row for so long, and refused so many payloads, refuses all."""
MIXED_S: Final = 60.0
"""A malformed payload is worth a warning for so long."""
DISCONNECTED, NOT_READING, NO_COLLECTOR = "disconnected", "not reading", "no collector"
SHOWN_CHARACTERS: Final = 80
TOPICS_TOLD: Final = 3


class Condition(NamedTuple):
    """Condition of one part."""

    part: str
    """`sensors`, `central`, `checkpoint`, `database`, `slot`, `certificate`, `web` or `flow`."""
    name: str
    """Name of the flow, or number of the slot."""
    level: Level
    state: str
    """One word or two."""
    reason: str = ""

    def plain(self) -> dict[str, str]:
        return {**self._asdict(), "text": str(self)}

    def __str__(self) -> str:
        what = {"sensors": "sensors' broker", "flow": f"flow {self.name}", "slot": f"slot {self.name}", "web": "page"}
        return f"{what.get(self.part, self.part)}: {self.reason or self.state}"


def conditions(status: Mapping[str, Any]) -> list[Condition]:
    """Returns the conditions of all parts."""
    ingest = status.get("ingest", {})
    sensors, central = _sensors(ingest), _central(status.get("central", {}), str(status.get("fleet", "")))
    return [
        sensors,
        central,
        _checkpoint(status.get("checkpoint", {})),
        *_database(status.get("database", {})),
        *_slots(status),
        *_certificate(status.get("certificate")),
        *_web(status.get("web", {})),
        *(_flow(flow, ingest.get("refused", {}), sensors, central) for flow in status.get("flows", ())),
    ]


def worst(found: list[Condition]) -> Level:
    """Returns the worst of all levels."""
    return max((condition.level for condition in found), key=LEVELS.index, default="good")


def ago(seconds: float) -> str:
    """A duration for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def of_broker(broker: str, reason: str) -> str:
    """The reason with the broker's address, once."""
    return reason if broker in re.split(":? ", reason) else f"{broker}: {reason}"


def _sensors(ingest: Mapping[str, Any]) -> Condition:
    broker, error = ingest.get("broker") or "(none)", ingest.get("error", "")
    if not ingest.get("connected"):
        why = "; ".join(filter(None, (ingest.get("failed"), error))) or "no connection yet"
        return Condition("sensors", "", "bad", DISCONNECTED, of_broker(broker, why))
    refused = [f"subscription to {filter_} refused: {why}" for filter_, why in ingest.get("refused", {}).items()]
    found = []
    if (paused_s := ingest.get("paused_s", 0.0)) >= PAUSED_S:
        found.append(f"nothing is read for {paused_s:.0f} s: what came before is not committed")
    if failed := ingest.get("failed"):
        found.append(failed)
    if found or refused:
        return Condition("sensors", "", "bad", NOT_READING if found else "refused", "; ".join([*refused, *found]))
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
    wait = f"{counted(rows, 'result row')} in the outbox" if rows else "the outbox is empty"
    level: Level = "bad" if waited >= UNACKNOWLEDGED_BAD_S else "warning"
    if not central.get("connected"):
        why = of_broker(broker, error or "no connection yet")
        return Condition("central", "", level, DISCONNECTED, f"{why}; {wait}")
    if waited >= UNACKNOWLEDGED_WARNING_S:
        reason = (
            f"{broker}: connected, but no collector has acknowledged a result for {ago(waited)}; {wait}; "
            f"is edgert-collector running there, for fleet {fleet}? If it is, its log and status say what it cannot do"
        )
        return Condition("central", "", level, NO_COLLECTOR, f"{reason} {error}".rstrip())
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


def _certificate(certificate: Mapping[str, Any] | None) -> Iterator[Condition]:
    """None for a gateway without one. A board renews its own in the last third of its life."""
    if certificate is None:
        return
    left_s, error, renewal = (certificate[name] for name in ("left_s", "error", "renewal_error"))
    failed = f"; its renewal failed: {renewal}" if renewal else ""
    if left_s is None or left_s <= 0:
        why = error or f"has ended: {certificate['ends']}"
        yield Condition("certificate", "", "bad", "not valid", f"{certificate['file']}: {why}{failed}")
    elif left_s < certificate["life_s"] / 4 and (renewal or left_s < CERTIFICATE_ENDS_S):
        yield Condition("certificate", "", "warning", "ends", f"ends in {left_s / 86_400:.1f} days{failed}")
    else:
        yield Condition("certificate", "", "good", "valid")


def _web(web: Mapping[str, Any]) -> Iterator[Condition]:
    """None where the page is served, or is not wanted. A gateway does its work without a page."""
    if error := web.get("error"):
        yield Condition("web", "", "warning", "no page", error)


def _flow(
    flow: Mapping[str, Any], refused_filters: Mapping[str, str], sensors: Condition, central: Condition
) -> Condition:
    name, state = flow["name"], flow["state"]
    if state == "failed":
        return Condition("flow", name, "bad", "stopped", f"is stopped: {flow['description']}")
    if state == "blocked":
        return Condition("flow", name, "bad", "blocked", "waits for room in the outbox")
    if state == "stuck":
        return Condition("flow", name, "bad", "stuck", "reaches no batch boundary")
    if state == "suspended":
        why = "stands still here until this board's agent reaches the fleet, with all boards of the flow in it"
        return Condition("flow", name, "warning", state, why)
    if state != "running":
        return Condition("flow", name, "bad", state, f"is {state}")
    if refused_here := [f"{f}: {refused_filters[f]}" for f in flow.get("filters", ()) if f in refused_filters]:
        return Condition("flow", name, "bad", NOT_READING, f"subscription refused to {'; '.join(refused_here)}")
    recent = flow.get("recent", {})
    refused, refusing_s = recent.get("refused_since_row", 0), recent.get("refusing_s") or 0.0
    if refused >= REFUSED_LEAST and refusing_s >= REFUSING_S:
        who = f"source {recent['refusing']} " if recent.get("refusing") else ""
        reason = (
            f"{who}refuses all its input: {refused:,} malformed payloads and no row in {ago(refusing_s)}{_sample(flow)}"
        )
        return Condition("flow", name, "bad", "refuses all", reason)
    if dropping := flow.get("dropping"):
        found = [AllDropped.of(each) for each in dropping]
        worst_of = next((each for each in found if each.lasts), found[0])
        return Condition("flow", name, "bad" if worst_of.lasts else "warning", "drops all", str(worst_of))
    return (
        _not_landing(flow, central)
        or _still(flow, recent)
        or _ahead(flow, recent)
        or _doubtful(flow, recent, sensors, central)
        or _at_work(name, recent)
    )


def _waits(condition: Condition) -> bool:
    """True if all flows wait for this part."""
    return condition.state in (DISCONNECTED, NO_COLLECTOR, NOT_READING)


def _not_landing(flow: Mapping[str, Any], central: Condition) -> Condition | None:
    """Results of other flows land, and of this one none."""
    waited = flow.get("unacknowledged_s", 0.0)
    if waited < UNACKNOWLEDGED_WARNING_S or _waits(central):
        return None
    reason = (
        f"none of its results was acknowledged for {ago(waited)}, and {flow['outbox_rows']:,} rows wait in the outbox; "
        "see the status and the log of edgert-collector"
    )
    return Condition(
        "flow", flow["name"], "bad" if waited >= UNACKNOWLEDGED_BAD_S else "warning", "not landing", reason
    )


def _still(flow: Mapping[str, Any], recent: Mapping[str, Any]) -> Condition | None:
    """Rows come whose time does not go on, so that no window closes: a fault once one should have."""
    if not flow.get("still") or not flow.get("window_s"):
        return None
    seconds, time, device = flow["still"]
    result_age_s = recent.get("result_age_s")
    resultless = result_age_s is None or result_age_s >= seconds
    level: Level = "bad" if resultless and seconds >= flow["window_s"] else "warning"
    reason = (
        f"time stands still at {_utc(time)}: {device} has sent rows for {ago(seconds)} and none with a newer time, so "
        "no window closes; is its clock right, and is time_field?"
    )
    return Condition("flow", flow["name"], level, "time stands still", reason)


def _ahead(flow: Mapping[str, Any], recent: Mapping[str, Any]) -> Condition | None:
    """Nearly all rows are ahead of time, and no window has closed since."""
    ahead = flow.get("ahead")
    result_age_s = recent.get("result_age_s")
    if not ahead or not flow.get("window_s") or (result_age_s is not None and result_age_s < ahead["for_s"]):
        return None
    seconds = ahead["seconds"]
    hours = round(seconds / 3600, 1)  # the fractions of a second that a device does not tell make no other hour
    far = ago(seconds) if hours < 1 else f"{hours:g} {'hour' if hours == 1 else 'hours'}"
    reason = (
        f"rows are {far} ahead of time: is the device's clock or time_zone right? Their windows end only then: "
        f"got {_short(ahead['beginning'])!r} on {ahead['topic']}"
    )
    return Condition("flow", flow["name"], "warning", "ahead of time", reason)


def _utc(time: float) -> str:
    try:
        return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time:g} s"


def _suffers(
    flow: Mapping[str, Any], recent: Mapping[str, Any], sensors: Condition, central: Condition
) -> Iterator[tuple[str, str]]:
    """(state, reason) of faults of parts that the flow needs."""
    if flow.get("filters") and _waits(sensors):
        age_s = recent.get("row_age_s")
        last = f"last row {ago(age_s)} ago" if age_s is not None else "no row yet"
        yield NO_INPUT, f"{last}: the sensors' broker is {sensors.state}"
    if flow.get("unacknowledged_s", 0.0) >= UNACKNOWLEDGED_WARNING_S and _waits(central):
        yield RESULTS_WAIT, f"{flow['outbox_rows']:,} rows wait in the outbox: {central.state}"


def _doubtful(
    flow: Mapping[str, Any], recent: Mapping[str, Any], sensors: Condition, central: Condition
) -> Condition | None:
    suffers = list(_suffers(flow, recent, sensors, central))
    found = [reason for _, reason in suffers]
    if gap := flow.get("gap"):
        found.append(f"rows were lost: {gap}")
    for missing in flow.get("never_seen", ()):
        came, seen = missing.get("came", {}), ", ".join(missing["seen"]) or "none"
        if fields := ", ".join(name for name in missing["fields"] if name not in came):
            found.append(f"field {fields} never seen; seen: {seen}")
        found += [f"field {name} came, and never with a usable value: {_unread(came[name])}" for name in came]
    found += flow.get("unusable", ())
    refused_age_s = recent.get("refused_age_s")
    if refused_age_s is not None and refused_age_s < MIXED_S:
        found.append(f"some payloads are malformed{_sample(flow)}")
    found += [f"may read what it publishes: {way}" for way in flow.get("possible_loops", ())]
    state = suffers[0][0] if suffers else "running"
    return Condition("flow", flow["name"], "warning", state, "; ".join(found)) if found else None


def _unread(sample: str) -> str:
    """The sample of a field, and why that is no value."""
    why = {"[": " (arrays are not read)", "{": " (an object: name the fields in it, with a dot)"}
    return f"got {sample}{why.get(sample[:1], '')}"


def _sample(flow: Mapping[str, Any]) -> str:
    bad = flow.get("malformed")
    if not bad:
        return ""
    return f": {bad['reason'].partition(', got ')[0]}, got {_short(bad['beginning'])!r} on {bad['topic']}"


def _short(beginning: str) -> str:
    return beginning if len(beginning) <= SHOWN_CHARACTERS else f"{beginning[:SHOWN_CHARACTERS]}..."


def _at_work(name: str, recent: Mapping[str, Any]) -> Condition:
    if recent.get("row_age_s") is None:
        reason = "no row has come since the start"
        if messages := recent.get("messages"):
            reason = f"{counted(messages, 'message')} came since the start, and held no row"
        return Condition("flow", name, "idle", "no input yet", reason)
    silent = recent.get("silent", ())
    return Condition(
        "flow", name, "good", "running", f"no message has come to {', '.join(silent)} yet" if silent else ""
    )
