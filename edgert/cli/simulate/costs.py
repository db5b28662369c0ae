"""Costs and selectivities of rows in a simulation: measured, given, or from the document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from edgert.boards import files
from edgert.core.errors import EdgertError, show
from edgert.flow.plan import PhysicalInstance, Plan, uncopied
from edgert.scheduling.profile import UNKNOWN, Profile
from edgert.sim.flows import DECODER_S, STAGE_S
from edgert.sim.pool import COLD_AFTER_S

if TYPE_CHECKING:
    from edgert.flow.graph import Flow, Node
    from edgert.flow.spec import Registry

LEAST_S: Final = 1e-9
"""Cost of a row where no time was measured, seconds."""
LEAST_PART: Final = 0.1
"""Least part of the measured time that counts as work on rows: the rest may be overhead of turns."""
MOST_S: Final = 1e12
"""No gateway has computed for longer."""
MEASURED, SAID, ASSUMED = "measured", "as said", "assumed"
TENTH: Final = f"{ASSUMED}: a tenth of what was measured, turns may have cost the rest"
_FOLLOW = ("kalman", "sliding_regression", "interpolate", "distinct_count", "second_moment")
AS_MANY: Final = frozenset(("map", "select", "key_by", "predict", *_FOLLOW))
"""Operators that give a row for a row, whatever comes; of the others it is taken from the document, or assumed."""


class Gives(NamedTuple):
    """Rows given per row taken, and how that is known; nothing where it cannot be otherwise."""

    rows: float
    why: str


class KnownCost(NamedTuple):
    """Cost of an instance."""

    profile: Profile
    why: str
    """How it is known what a row gives, as in `Gives`."""
    guess: str = ""
    """How what a row costs was guessed, where it was neither measured nor said."""


def known_of(physical: Plan, registry: Registry, status: Path | None, said: Sequence[str]) -> dict[str, KnownCost]:
    """Every instance. `said` are arguments of `--cost`."""
    costs = dict.fromkeys(physical.instances, UNKNOWN.cost_s)
    guesses = dict.fromkeys(costs, ASSUMED)
    gives: dict[str, Gives] = {}
    if status:
        for name, known in _as_measured(physical, registry, list(_measured(status, physical.flow, registry))):
            costs[name], gives[name] = known.profile.cost_s, Gives(known.profile.selectivity, known.why)
            guesses[name] = known.guess
    for text in said:
        names, cost_s, selectivity = _said(text, costs)
        costs |= dict.fromkeys(names, cost_s)
        guesses |= dict.fromkeys(names, "")
        if selectivity is not None:
            gives |= dict.fromkeys(names, Gives(selectivity, SAID))
    leaving: dict[str, float] = {}
    """Rows given per row that enters a source, of all copies together."""
    for copies in physical.sets():  # each after all that feed it
        came = [leaving[name] for name in copies[0].inputs]
        assumed = assumed_of(copies[0].nodes, came)
        for copy in copies:
            gives.setdefault(copy.name, assumed)
        mean = sum(gives[copy.name].rows for copy in copies) / len(copies)
        leaving[uncopied(copies[0].name)[0]] = mean * (sum(came) if came else 1.0)
    return {name: KnownCost(Profile(costs[name], gives[name].rows), gives[name].why, guesses[name]) for name in costs}


def assumed_of(nodes: Sequence[Node], came: Sequence[float]) -> Gives:
    """Selectivity of operators that follow each other, as far as the document says it. `came`: how many rows each input
    of the first brings, beside each other."""
    each = [_assumed(node, came) for node in nodes]
    rows = 1.0
    for gives in each:
        rows *= gives.rows
    return Gives(rows, ", ".join(dict.fromkeys(gives.why for gives in each if gives.why)))


def _assumed(node: Node, came: Sequence[float]) -> Gives:
    if node.type in AS_MANY:
        return Gives(1.0, "")
    match node.type:
        case "mqtt_source":
            return Gives(1.0, "assumed: a message is a row")
        case "filter" | "bloom_filter" | "annotate":
            drops = node.type != "annotate" or node.parameters["missing"] == "drop"
            return Gives(1.0, f"assumed: all pass {node.name}" if drops else "")
        case "count_window" | "train_regression" | "train_tree":
            return Gives(1 / node.parameters["size"], f"one of {node.parameters['size']} rows: its size")
        case "join_latest":
            return Gives(came[0] / (sum(came) or 1.0), "one for each row of its first input")
        case "join_observations" if len(came) > 1:
            return Gives(max(came) / (sum(came) or 1.0), "assumed: each input has its part of every observation")
        case "join_observations":
            return Gives(1 / len(node.parameters["fields"]), "assumed: each row brings one of its fields")
        case "tumbling_window":
            return Gives(1.0, "assumed: as many results as rows, the most there can be")
    return Gives(1.0, "assumed")


def _said(text: str, known: Iterable[str]) -> tuple[list[str], float, float | None]:
    """Instances, seconds per row, and what a row gives if it is said."""
    instances = list(known)
    name, sign, numbers = text.partition("=")
    try:
        cost, comma, selectivity = numbers.partition(",")
        cost_s = float(cost) * 1e-6
        gives = float(selectivity) if comma else None
        names = _copies(name, instances)
        if not sign or not names or not 0 < cost_s < MOST_S or not (gives is None or 0 <= gives < float("inf")):
            raise ValueError
    except ValueError:
        raise EdgertError(
            f"--cost: expected INSTANCE=MICROSECONDS[,SELECTIVITY] with one of {', '.join(instances)}, got {show(text)}"
        ) from None
    return names, cost_s, gives


def _copies(name: str, known: Iterable[str]) -> list[str]:
    """The instance of that name, or all copies of it."""
    return [one for one in known if name in (one, uncopied(one)[0])]


Counts = tuple[str, int, int, float, float]
"""Instance, rows in, rows out, seconds of computing, and of these at most what turns cost beside rows."""


def _as_measured(physical: Plan, registry: Registry, measured: Sequence[Counts]) -> Iterator[tuple[str, KnownCost]]:
    """Yields (instance, cost) for each instance that had rows, however its operators were fused or copied where that
    was measured. Of a chain only the whole was: where it is apart now, its last stage gives what the whole gave."""
    whole: dict[str, list[float]] = {}
    """Counts by measured name, without the number of a copy: rows in and out and both seconds, of all copies."""
    for name, *counts in measured:
        sums = whole.setdefault(uncopied(name)[0], [0, 0, 0.0, 0.0])
        sums[:] = [a + b for a, b in zip(sums, counts, strict=True)]
    of_operator = {operator: sums for name, sums in whole.items() for operator in name.split("+")}
    chain_of = {operator: name.split("+") for name in whole for operator in name.split("+")}
    there = {operator for instance in physical.instances.values() for operator in instance.operators}
    for instance in physical.instances.values():
        entering = of_operator.get(instance.operators[0])
        if entering is None:
            _tell(f"the status says nothing of {instance.name}: its rows cost what is the default")
        elif entering[0]:
            # what begins in it counts here; what only ends in it was begun, and counted, in one before it
            begun = [sums for name, sums in whole.items() if name.split("+")[0] in instance.operators]
            busy_s, beside_s = (sum(sums[n] for sums in begun) for n in (2, 3))
            rows_s, least_s = max(busy_s - beside_s, 0.0), busy_s * LEAST_PART
            _tell_of_new(instance, registry, of_operator)
            if not busy_s:  # it was computed in one function with one before it, and stands there, or was not seen yet
                _tell(f"the status has no time for {instance.name}: its rows cost nothing here")
            first, last = (
                instance.operators[0],
                next(name for name in reversed(instance.operators) if name in of_operator),
            )
            ends = last == [name for name in chain_of[last] if name in there][-1]
            whole_chains = ends and first == chain_of[first][0]
            why = MEASURED if whole_chains else f"assumed: only {'+'.join(chain_of[last])} as a whole was measured"
            leaving = of_operator[last][1 if ends else 0]
            cost_s = max(max(rows_s, least_s) / entering[0], LEAST_S)
            guess = TENTH if rows_s < least_s else ""
            yield instance.name, KnownCost(Profile(cost_s, leaving / entering[0]), why, guess)


def _tell_of_new(instance: PhysicalInstance, registry: Registry, seen: Mapping[str, object]) -> None:
    """Operators that the flow had not when it was measured; a marker does nothing anyway."""
    new = [node.name for node in instance.nodes if node.name not in seen and registry[node.type].keys is None]
    if new:
        _tell(f"the status says nothing of {', '.join(new)} in {instance.name}: no cost, and a row for a row")


def _tell(what: str) -> None:
    print(f"edgert: {what}", file=sys.stderr)


def _measured(file: Path, flow: Flow, registry: Registry) -> Iterator[Counts]:
    """Counts of a flow's instances by a gateway's status, and the part of their time that turns cost beside rows. The
    simulation adds that for its own turns, which may be others: one cold turn for each `COLD_AFTER_S` of rest and, of
    each stage, for each turn that can have had rows for it."""
    try:
        status: Any = json.loads(files.read(file))
        flows: Sequence[Mapping[str, Any]] = status["flows"]
        operators = next(f["operators"] for f in flows if f["name"] == flow.name)
        found = list(map(_counts, operators))
    except StopIteration:
        raise EdgertError(
            f"{file}: expected the status of a gateway that runs flow {flow.name}, found no such flow"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise EdgertError(
            f"{file}: expected a gateway's status (its page's api/status), got {show(str(error))}"
        ) from None
    if any(turns and idle_s is None for *_, turns, idle_s in found):
        _tell("the status does not say how long instances rested: what cold caches cost is in what rows cost here")
    cold = 0.0
    """Turns that caches can have been cold for, in parts of one."""
    for name, rows_in, rows_out, busy_s, turns, idle_s in found:
        if turns:  # of a region those of its first stage are told
            cold = min(turns, (idle_s or 0.0) / COLD_AFTER_S)
        node = flow.nodes.get(name.partition("+")[0].partition("#")[0])
        source = node is not None and registry[node.type].role == "source"
        yield name, rows_in, rows_out, busy_s, min(cold, rows_in) * (STAGE_S + DECODER_S * source)


def _counts(operator: Mapping[str, Any]) -> tuple[str, int, int, float, int, float | None]:
    """Name, rows in and out, seconds of computing, turns and, if it is said, seconds of rest. Raises ValueError,
    TypeError, KeyError or AttributeError for what no gateway says."""
    keys = ("name", "rows_in", "rows_out", "busy_s", "turns")
    name, rows_in, rows_out, busy_s, turns = (operator[key] for key in keys)
    uncopied(name)
    for key, value in (("rows_in", rows_in), ("rows_out", rows_out), ("turns", turns)):
        if type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f"{key} of {name}: {show(value)}")
    idle_s = operator.get("idle_s")
    for key, value in (("busy_s", busy_s), ("idle_s", 0 if idle_s is None else idle_s)):
        if type(value) not in (int, float) or not 0 <= value < MOST_S:
            raise ValueError(f"{key} of {name}: {show(value)}")
    return name, rows_in, rows_out, float(busy_s), turns, idle_s
