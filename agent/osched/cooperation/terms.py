"""A board's scheduling terms for the others, and their packed form for the gossip.

Numbers are rounded to a thousandth of a decade (0.12 %), so that each takes at most three bytes. The packed form has a
bound: flows beyond it are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from edgert.core.errors import PayloadError, ProtocolError, show
from edgert.core.packing import pack as pack_plain
from edgert.core.packing import unpack_untrusted as unpack_plain

VERSION: Final = 1
MAX_BYTES: Final = 900
"""Largest packed form: what a section of the gossip holds (`agent.membership.parameters`)."""
MAX_NAME: Final = 200
MAX_ITEMS: Final = 256
STEPS: Final = 1000
"""Per factor of ten."""
ZERO: Final = -(1 << 15)
GREATEST: Final = 30_000
ENTRY: Final = ("queue_size", "path_selectivity", "path_cost", "cost_after")
"""Metrics of an operator that takes rows from another board, in their order in the packed form."""


@dataclass(frozen=True, slots=True)
class FlowTerms:
    """Terms of one board's part of a flow that other boards share."""

    plan: int
    """Number of the plan: terms of another plan say nothing about the operators of this one."""
    sends: Mapping[str, float | None] = field(default_factory=dict)
    """Operator on another board -> cost of the dearest path to it, s; None: unknown."""
    takes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Operator that takes rows from another board -> metric of `ENTRY` -> value."""


@dataclass(frozen=True, slots=True)
class BoardTerms:
    """Terms of one board."""

    policy: str
    span: tuple[float, float] | None = None
    """Least and greatest priority of a thread under the policy; None without threads."""
    flows: Mapping[str, FlowTerms] = field(default_factory=dict)
    """Flows that the board shares with others."""


def code(value: float | None) -> int | None:
    """A number of at least 0 as 1000 times its decimal logarithm; negative ones count as 0."""
    if value is None or math.isnan(value):
        return None
    if value <= 0.0:
        return ZERO
    return max(-GREATEST, min(GREATEST, GREATEST if math.isinf(value) else round(STEPS * math.log10(value))))


def number(coded: int | None) -> float | None:
    """The number that `code` stands for."""
    return None if coded is None else 0.0 if coded == ZERO else 10.0 ** (coded / STEPS)


def pack(terms: BoardTerms) -> tuple[bytes, int]:
    """The packed form, at most `MAX_BYTES`; and how many flows are left out of it, the last by name."""
    span = None if terms.span is None else [code(terms.span[0]), code(terms.span[1])]
    flows: list[Any] = []
    plain = [VERSION, terms.policy, span, flows]
    left = MAX_BYTES - len(pack_plain(plain)) - 2  # a list of more than 15 flows has a longer head
    for name in sorted(terms.flows):
        flow = terms.flows[name]
        takes = [[o, *(code(values.get(metric)) for metric in ENTRY)] for o, values in sorted(flow.takes.items())]
        one = [name, flow.plan, [[o, code(cost)] for o, cost in sorted(flow.sends.items())], takes]
        size = len(pack_plain(one))
        if size > left or len(flows) == MAX_ITEMS:
            break
        left -= size
        flows.append(one)
    return pack_plain(plain), len(terms.flows) - len(flows)


def unpack_untrusted(payload: bytes) -> BoardTerms:
    """The terms of another board. Raises `ProtocolError`; other bytes raise nothing else."""
    try:
        plain = unpack_plain(payload, MAX_BYTES, MAX_ITEMS)
    except PayloadError as error:
        raise ProtocolError(f"scheduling of another board: {error}") from error
    match plain:
        case [version, str(policy), span, list(flows)] if version == VERSION:
            return BoardTerms(policy, _span(span), dict(map(_flow, flows)))
        case _:
            raise ProtocolError(
                f"scheduling of another board: expected [{VERSION}, policy, span, flows], got {show(plain)}"
            )


def _span(plain: Any) -> tuple[float, float] | None:
    if plain is None:
        return None
    match plain:
        case [least, greatest]:
            low, high = _number(least), _number(greatest)
            if low is not None and high is not None and low <= high:
                return low, high
    raise ProtocolError(f"span of priorities: expected the least and the greatest, got {show(plain)}")


def _flow(plain: Any) -> tuple[str, FlowTerms]:
    match plain:
        case [name, int(plan), list(sends), list(takes)] if type(plan) is int and plan >= 0:
            return _name(name), FlowTerms(plan, dict(map(_send, sends)), dict(map(_take, takes)))
    raise ProtocolError(f"expected a flow as [name, plan, sends, takes], got {show(plain)}")


def _send(plain: Any) -> tuple[str, float | None]:
    match plain:
        case [name, cost]:
            return _name(name), _number(cost)
    raise ProtocolError(f"expected [operator, cost], got {show(plain)}")


def _take(plain: Any) -> tuple[str, dict[str, float]]:
    match plain:
        case [name, *coded] if len(coded) == len(ENTRY):
            values = zip(ENTRY, map(_number, coded), strict=True)
            return _name(name), {metric: value for metric, value in values if value is not None}
    raise ProtocolError(f"expected [operator, {', '.join(ENTRY)}], got {show(plain)}")


def _name(plain: Any) -> str:
    if type(plain) is not str or not 0 < len(plain) <= MAX_NAME or not plain.isprintable():
        raise ProtocolError(f"expected a name of 1 to {MAX_NAME} characters, got {show(plain)}")
    return plain


def _number(plain: Any) -> float | None:
    if plain is not None and (type(plain) is not int or (plain != ZERO and abs(plain) > GREATEST)):
        raise ProtocolError(f"expected a number as {STEPS} times its logarithm, or nothing, got {show(plain)}")
    return number(plain)


def values(terms: BoardTerms) -> Iterator[tuple[tuple[str, ...], float | None]]:
    """Every number of the terms, with the path to it."""
    for end, value in zip(("least", "greatest"), terms.span or (), strict=False):
        yield (end,), value
    for name, flow in terms.flows.items():
        for operator, cost in flow.sends.items():
            yield (name, "sends", operator), cost
        for operator, metrics in flow.takes.items():
            for metric, value in metrics.items():
                yield (name, "takes", operator, metric), value


def differ(one: BoardTerms, other: BoardTerms, factor: float) -> bool:
    """True if a number of the two differs by more than `factor`, or anything else at all. Queues of less than one and
    of one row are alike."""
    plans = [{name: flow.plan for name, flow in terms.flows.items()} for terms in (one, other)]
    mine, theirs = dict(values(one)), dict(values(other))
    if one.policy != other.policy or plans[0] != plans[1] or mine.keys() != theirs.keys():
        return True
    return any(_differ(path, a, theirs[path], factor) for path, a in mine.items())


def _differ(path: tuple[str, ...], a: float | None, b: float | None, factor: float) -> bool:
    if a is None or b is None:
        return a is not b
    if path[-1] == "queue_size":
        a, b = a + 1.0, b + 1.0
    least, greatest = min(a, b), max(a, b)
    return greatest > least * factor
