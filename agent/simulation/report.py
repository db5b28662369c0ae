"""A simulation in words: its plan of events, its timeline, its summary, and heuristics beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from agent.simulation.described.events import FleetEvent
from agent.simulation.run import FleetOutcome

TERMS: Final = ("latency_ms", "boards", "edges", "rows")
"""Terms of the score, as `agent.placement.problem.cost.CostTerms` names them."""


def plan(events: Sequence[FleetEvent]) -> str:
    """One line for each event."""
    if not events:
        return "nothing goes wrong (--kills, --cuts, --clock-jumps, [[events]])"
    return "\n".join(f"{event.at_s:8.1f} s  {event}" for event in events)


def timeline(outcome: FleetOutcome) -> str:
    return "\n".join(
        f"{line.at_s:8.1f} s  {f'{line.board}: ' if line.board else ''}{line.text}" for line in outcome.lines
    )


def summary(outcome: FleetOutcome) -> str:
    return "\n".join(f"{f'{name}:':24} {told}" for name, told in _summary(outcome))


def _summary(o: FleetOutcome) -> Iterator[tuple[str, str]]:
    yield "availability", f"{o.availability:.3%} of {o.seconds:g} s"
    for state in dict.fromkeys(outage.state for outage in o.outages):
        some = [outage.seconds for outage in o.outages if outage.state == state]
        yield f"  {state}", f"{sum(some):.2f} s in {len(some)} time{'s' * (len(some) > 1)}"
    if (longest := o.longest) is not None:
        yield "longest outage", f"{longest.seconds:.2f} s from {longest.began_s:.1f} s on: {longest.why}"
    yield "changes of plan", f"{o.changes}, with {o.moves} moves of operators"
    yield "two owners", f"{len(o.violations)}: {'; '.join(o.violations)}" if o.violations else "never"
    if o.deaths_known_s:
        known = sorted(o.deaths_known_s)
        yield "deaths known to all", f"after {known[len(known) // 2]:.1f} s (median), {known[-1]:.1f} s (longest)"
    yield "false deaths", f"{o.false_deaths} times a board held a living one for dead"
    yield "gossip", f"{o.gossip_bytes_s:,.0f} bytes/s per board"
    yield "requests of agents", f"{o.requests_s:.1f} per second and board, {o.request_bytes_s:,.0f} bytes/s"
    if o.coordinate_error is not None:
        yield "coordinates", f"{o.coordinate_error:.1%} median error of round trips"
    for name, score in (("placement at start", o.start), ("placement at end", o.end)):
        yield name, _score(score) if score else "unknown: the flow did not run whole"
    yield (
        "rows",
        (
            f"{o.rows['came']:,.0f} came, {o.rows['left']:,.0f} left the flow,"
            f" {o.rows['waiting']:,.0f} wait at the end,"
            f" {o.rows['most waiting']:,.0f} at most"
        ),
    )


def _score(score: Mapping[str, float]) -> str:
    terms = ", ".join(f"{name.removesuffix('_ms')} {score[name]:.3g}" for name in TERMS if name in score)
    return f"score {score['score']:.4g} ({terms}), limits violated by {score['violation']:.2f}"


def table(outcomes: Sequence[FleetOutcome]) -> str:
    """Heuristics on the same events."""
    first_line = (
        f"{'heuristic':20} {'available':>10} {'longest s':>10} {'changes':>8} {'moves':>6} {'score start':>12}"
        f" {'score end':>10} {'violated':>9} {'waiting':>9}"
    )
    lines = [first_line]
    for o in outcomes:
        scores = (f"{score['score']:.4g}" if score else "-" for score in (o.start, o.end))
        first, last = scores
        violated = f"{o.end['violation']:.2f}" if o.end else "-"
        longest = f"{o.longest.seconds:.1f}" if o.longest else "0.0"
        lines.append(
            f"{o.heuristic or 'none':20} {o.availability:>10.3%} {longest:>10} {o.changes:>8} {o.moves:>6} {first:>12}"
            f" {last:>10} {violated:>9} {o.rows['waiting']:>9,.0f}"
        )
    return "\n".join(lines)
