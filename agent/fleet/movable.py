"""Which instances of a flow may leave a board by themselves, and what that does to the flow's placement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.interference.ring import NOTHING, Ring
from agent.placement.rules import Rules
from edgert.core.errors import EdgertError, show
from edgert.flow.plan import copy_name, uncopied

KEY: Final = "key_by"
PUBLISH: Final = "publish"
"""Operators of this type stay: they publish to the broker of their own board, where the devices are."""


@dataclass(frozen=True, slots=True)
class Movable:
    """One instance. `edges`: of its whole flow, between operator copies; `on`: operator copy -> gateway, of now."""

    flow: str
    operators: tuple[str, ...]
    ring: Ring
    edges: tuple[tuple[str, str], ...]
    on: Mapping[str, str]

    @property
    def copies(self) -> tuple[str, ...]:
        """Its operator copies with their flow: other than the instance's name they are the same on each board."""
        return tuple(f"{self.flow}/{copy}" for copy in self.operators)


def copies_here(figures: Mapping[str, Any]) -> set[str]:
    """The operator copies, with their flow, that run in instances of a board."""
    return {f"{flow}/{copy}" for flow, told in figures.get("flows", {}).items() for copy in _instances(told)}


def movable(
    flow: str,
    part: Mapping[str, Any],
    operators: Mapping[str, Mapping[str, Any]],
    figures: Mapping[str, Any],
    rings: Mapping[str, Ring],
    board: str,
) -> dict[str, Movable]:
    """The instances of `flow` on `board` that may leave it, by `flow/instance`. `part`: as the gateway tells it;
    `operators`: by copy, each with its type, its inputs, and whether it is a source; `rings`: by instance.

    Operators that are fused leave together, and keys before them with them. What the flow's rules keep stays
    (`Rules.handed_over`). Raises `EdgertError` where the rules are none."""
    rules = Rules.untrusted(part.get("rules") or {})
    on = {copy: at[0] for copy, at in part["assignment"].items()}
    stay = {copy for copy, told in operators.items() if told["source"] or told["type"] == PUBLISH}
    stay |= {copy for copy in on if not rules.handed_over(copy)}
    edges = tuple((source, copy) for copy, told in operators.items() for source in told["inputs"])
    runs = _instances(figures)
    before = _markers(runs, operators, {copy for copy, at in on.items() if at == board and copy not in stay})
    found: dict[str, Movable] = {}
    copies_of, markers_of = _grouped(runs), _grouped(before)
    for name in figures.get("instances", {}):
        copies = copies_of.get(name, ())
        here = all(on.get(copy) == board for copy in copies)
        if name in rings and copies and here and stay.isdisjoint(copies):
            with_keys = (*copies, *markers_of.get(name, ()))
            found[f"{flow}/{name}"] = Movable(flow, with_keys, rings[name], edges, on)
    return found


def leaving(
    flow: str,
    part: Mapping[str, Any],
    operators: Mapping[str, Mapping[str, Any]],
    figures: Mapping[str, Any],
    rings: Mapping[str, Ring],
    board: str,
) -> list[Movable]:
    """All of `flow` on `board` that can leave it when people want that: pinned operators too, and those that were fused
    with a source. In the order of the flow; operators that are fused go together, and keys before them with them."""
    on = {copy: at[0] for copy, at in part["assignment"].items()}
    edges = tuple((source, copy) for copy, told in operators.items() for source in told["inputs"])
    runs = _instances(figures)
    instance = {**runs, **_markers(runs, operators, {copy for copy, at in on.items() if at == board})}
    groups: dict[str, list[str]] = {}
    for copy, told in operators.items():
        if on.get(copy) == board and not told["source"] and told["type"] != PUBLISH:
            groups.setdefault(instance.get(copy, copy), []).append(copy)
    return [Movable(flow, tuple(some), rings.get(name, NOTHING), edges, on) for name, some in groups.items()]


def _instances(figures: Mapping[str, Any]) -> dict[str, str]:
    """Operator copy -> the instance in which it runs."""
    return {
        copy_name(operator, uncopied(name)[1]): name
        for name, told in figures.get("instances", {}).items()
        for operator in told["operators"]
    }


def _grouped(of: Mapping[str, str]) -> dict[str, list[str]]:
    """Instance -> operator copies, of operator copy -> instance."""
    found: dict[str, list[str]] = {}
    for copy, name in of.items():
        found.setdefault(name, []).append(copy)
    return found


def _markers(
    runs: Mapping[str, str], operators: Mapping[str, Mapping[str, Any]], here: Collection[str]
) -> dict[str, str]:
    """Operator copy of `here` that runs in no instance, as a `key_by` does -> the instance here that reads it. Left
    behind alone it would keep a board in a flow of which the board runs nothing."""
    found: dict[str, str] = {}
    markers = [copy for copy in operators if copy in here and copy not in runs]
    for copy in reversed(markers):  # a marker may read another one
        readers = [reader for reader, told in operators.items() if copy in told["inputs"] and reader in here]
        of = next((name for reader in readers if (name := runs.get(reader) or found.get(reader))), None)
        if of is not None:
            found[copy] = of
    return found


def with_keys(
    after: Mapping[str, str], moves: Collection[str], operators: Mapping[str, Mapping[str, Any]], rules: Rules
) -> dict[str, str]:
    """The placement `after` some moves, with the keys that they leave behind: a `key_by` runs where its neighbours do,
    and one of which no reader is on its board any more would only keep that board in the flow. It goes to the board of
    a reader that moved, unless it is asked for or pinned itself. `operators`: by copy, in topological order."""
    found = dict(after)
    for copy in reversed(list(operators)):  # a key may be read by another one
        readers = [reader for reader, told in operators.items() if copy in told["inputs"]]
        moved = [reader for reader in readers if reader in moves or found[reader] != after[reader]]
        kept = copy in moves or rules.pin_of(copy) is not None
        if operators[copy]["type"] == KEY and moved and not kept and found[copy] not in map(found.get, readers):
            found[copy] = found[moved[0]]
    return found


def check_leaving(
    flow: str, on: Mapping[str, str], rules: Rules, moves: Collection[str], giver: Any, drain: bool
) -> None:
    """The coordinator's look at a move that a board asks for, while no other coordinator changes the flow: that board
    may have known an old plan or old rules. `on`: operator copy -> gateway. `drain`: people empty the board, pinned
    operators included. Raises `EdgertError` where the operators of `moves` are not on `giver`, or its rules keep
    one."""
    if gone := sorted(operator for operator in moves if on.get(operator) != giver):
        raise EdgertError(f"flow {flow}: {', '.join(gone)}: not on {show(giver)} any more")
    kept = sorted(operator for operator in moves if not rules.handed_over(operator))
    if kept and not drain:
        raise EdgertError(f"flow {flow}: its rules keep {', '.join(kept)} from moves that were not asked for")


def crossing(one: Movable, to: str) -> float:
    """The change, by the move, of the part of the flow's edges that lie between boards; below 0 where it brings the
    instance to its neighbours."""
    if not one.edges:
        return 0.0
    after = {**one.on, **dict.fromkeys(one.operators, to)}
    return (_between(one.edges, after) - _between(one.edges, one.on)) / len(one.edges)


def _between(edges: Iterable[tuple[str, str]], on: Mapping[str, str]) -> int:
    return sum(on.get(a) != on.get(b) for a, b in edges)
