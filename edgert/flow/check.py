"""The check of a plain flow document: every fault it has, each with its path, or the flow.

A value's fault hides no other: what cannot be used is left out and the rest goes on being checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from edgert.core.errors import Problem, show
from edgert.core.ids import FLOW_NAME, TABLE_NAME
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.graph import Flow, Node
from edgert.flow.loops import Loop, loops
from edgert.flow.options import delivery, full_outbox, latency, on_error
from edgert.flow.options.delivery import Delivery
from edgert.flow.options.full_outbox import WhenFull
from edgert.flow.options.on_error import OnError
from edgert.flow.parameters import parse_parameters, parse_values
from edgert.flow.spec import COMMON, INSTANCES, SLOT, OperatorSpec, Registry
from edgert.flow.structure import field_problems, graph_problems, in_order, keys_above

NAME_RULE: Final = "a name of 1 to 63 small letters, digits, _ and -, beginning with a letter or digit"
FLOW_RULE: Final = f"{NAME_RULE}, not ending with _v and a number: so tables of later versions are called"
MAX_OPERATORS: Final = 500
MAX_INSTANCES: Final = 1000
"""Most instances of all operators of a flow together: each has figures in every status, and a queue."""
MAX_PROBLEMS: Final = 100
"""Beyond these the report ends with a line that counts the rest."""
_TOP = ("name", "description", "delivery", "latency", "checkpoint", "outbox", "on_error", "operators")


def check(document: Mapping[str, Any], registry: Registry) -> tuple[Flow | None, tuple[Problem, ...]]:
    """The flow, or None and the problems."""
    checker = _Checker(document, registry)
    flow = checker.run()
    problems = checker.problems
    if len(problems) > MAX_PROBLEMS:
        more = Problem("document", f"at most {MAX_PROBLEMS} problems to show", f"{len(problems) - MAX_PROBLEMS} more")
        problems = [*problems[:MAX_PROBLEMS], more]
    return (None if problems else flow), tuple(problems)


class _Checker:
    """Goes through one document; `problems` in the order of the document."""

    def __init__(self, document: Mapping[str, Any], registry: Registry) -> None:
        self.document = document
        self.registry = registry
        self.problems: list[Problem] = []
        self.faulty: set[str] = set()
        """Operators with a fault of their own."""

    def report(self, path: str, expected: str, got: str) -> None:
        self.problems.append(Problem(path, expected, got))

    def run(self) -> Flow | None:
        document = self.document
        self.problems += unknown_keys("", document, _TOP)
        name = self.name()
        description = document.get("description", "")
        if not isinstance(description, str) or len(description) > 1000:
            self.report("description", "a string of at most 1000 characters", show(description))
        guarantee = self.delivery(document.get("delivery", delivery.DEFAULT))
        latency_s, problems = latency.parse(document.get("latency"))
        self.problems += problems
        interval = self.interval(document.get("checkpoint", {}))
        when_full = self.when_full(document.get("outbox", {}))
        policy = self.on_error(document.get("on_error", {}))
        operators = self.operators(document.get("operators"))
        if operators is None:
            return None
        nodes = {key: self.node(key, table) for key, table in operators.items()}
        found = {key: node for key, node in nodes.items() if node is not None}
        graph, cyclic = graph_problems(found, frozenset(nodes), self.registry)
        self.problems += graph
        ordered = in_order(found)
        filters = (node.parameters.get("topic") for node in ordered.values() if not node.inputs)
        self.problems += on_error.loop_problems(
            policy, name, (topic.filter for topic in filters if isinstance(topic, TopicTemplate))
        )
        description = description if isinstance(description, str) else ""
        flow = Flow(name, ordered, dict(document), interval, description, policy, when_full, guarantee, latency_s)
        self.whole_graph(flow, cyclic, structure_is_sound=not graph and len(found) == len(nodes))
        return flow

    def name(self) -> str:
        name = self.document.get("name")
        if "name" not in self.document:
            self.report("name", NAME_RULE, "nothing")
        elif not isinstance(name, str) or not FLOW_NAME.fullmatch(name):
            rule = FLOW_RULE if isinstance(name, str) and TABLE_NAME.fullmatch(name) else NAME_RULE
            self.report("name", rule, show(name))
        return name if isinstance(name, str) else ""

    def delivery(self, given: Any) -> Delivery:
        choice, problems = delivery.parse(given)
        self.problems += problems
        return choice

    def interval(self, table: Any) -> float:
        if not isinstance(table, Mapping):
            self.report("checkpoint", "a table", show(table))
            return 5.0
        self.problems += unknown_keys("checkpoint", table, ("interval_s",))
        value = table.get("interval_s", 5.0)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not 0.1 <= value <= 3600:
            self.report("checkpoint.interval_s", "a number from 0.1 to 3600 (s)", show(value))
            return 5.0
        return float(value)

    def when_full(self, table: Any) -> WhenFull:
        if isinstance(table, Mapping):
            self.problems += unknown_keys("outbox", table, full_outbox.KEYS)
        choice, problems = full_outbox.parse(table)
        self.problems += problems
        return choice

    def on_error(self, table: Any) -> OnError:
        if isinstance(table, Mapping):
            self.problems += unknown_keys("on_error", table, on_error.KEYS)
        policy, problems = on_error.parse(table)
        self.problems += problems
        return policy

    def operators(self, table: Any) -> Mapping[str, Any] | None:
        if not isinstance(table, Mapping) or not table:
            got = "nothing" if table is None else show(table)
            self.report("operators", "a table with at least one source and one sink", got)
            return None
        if len(table) > MAX_OPERATORS:
            self.report("operators", f"at most {MAX_OPERATORS} operators", str(len(table)))
            return None
        return table

    def node(self, name: Any, table: Any) -> Node | None:
        """The node of one operator's table, with the parameters that are right; None if its type is not known."""
        path = f"operators.{name}"
        before = len(self.problems)
        if not isinstance(name, str) or not TABLE_NAME.fullmatch(name):
            self.report(path, NAME_RULE, show(name))
        spec = self.spec(path, table)
        node = None
        if spec is not None:
            problems, parameters = parse_parameters(path, table, spec)
            known = ("type", *_input_keys(spec), *(p.name for p in (*spec.parameters, *COMMON)))
            self.problems += unknown_keys(path, table, known)
            self.problems += problems
            inputs, (copies, slot) = self.inputs(path, table, spec), self.common(path, table, spec)
            node = Node(name, spec.type, parameters, inputs, copies, slot, spec.stateless)
        if len(self.problems) > before:
            self.faulty.add(name)
        return node

    def spec(self, path: str, table: Any) -> OperatorSpec | None:
        if not isinstance(table, Mapping):
            self.report(path, "a table with a type", show(table))
            return None
        kind = table.get("type")
        if isinstance(kind, str) and kind in self.registry:
            return self.registry[kind]
        near = get_close_matches(kind, self.registry, 1) if isinstance(kind, str) else []
        hint = f" (did you mean {near[0]}?)" if near else ""
        got = show(kind) if "type" in table else "nothing"
        self.report(f"{path}.type", f"one of {', '.join(sorted(self.registry))}{hint}", got)
        return None

    def common(self, path: str, table: Mapping[str, Any], spec: OperatorSpec) -> tuple[int, int]:
        """Returns how many instances are asked for, and which slot; whether there is a key to divide the rows by is a
        question to the graph."""
        problems, values = parse_values(path, table, COMMON)
        self.problems += problems
        copies: int = values.get(INSTANCES.name, 1)
        where = f"{path}.{INSTANCES.name}"
        if copies > 1 and spec.keys is not None:
            self.report(where, f"1 ({spec.type} is no instance by itself)", str(copies))
        elif copies > 1 and not spec.stateless and spec.divides_by is None:
            self.report(where, f"1 ({spec.type} does not say by what its rows could be divided)", str(copies))
        else:
            if values.get(SLOT.name, -1) >= 0 and spec.keys is not None:
                self.report(
                    f"{path}.{SLOT.name}", f"none ({spec.type} is no instance by itself)", str(values[SLOT.name])
                )
            return copies, values.get(SLOT.name, -1)
        return 1, -1

    def inputs(self, path: str, table: Mapping[str, Any], spec: OperatorSpec) -> tuple[str, ...]:
        """The names in `input` or `inputs`; whether they exist is a question to the graph."""
        if spec.role == "source":
            for key in ("input", "inputs"):
                if key in table:
                    self.report(f"{path}.{key}", "no input (this is a source)", show(table[key]))
            return ()
        if not spec.many_inputs:
            if not isinstance(table.get("input"), str):
                got = show(table["input"]) if "input" in table else "nothing"
                self.report(f"{path}.input", f"the name of an operator{self._several(table.get('input'))}", got)
                return ()
            return (table["input"],)
        if "input" in table and not isinstance(table["input"], str):
            expected = "the name of one operator, or inputs = [...] with a list of names"
            self.report(f"{path}.input", expected, show(table["input"]))
            return ()
        names = table.get("inputs", [table["input"]] if "input" in table else None)
        if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) for n in names):
            self.report(f"{path}.inputs", "a list of names of operators", "nothing" if names is None else show(names))
            return ()
        if len(set(names)) < len(names):
            self.report(f"{path}.inputs", "each input once", show(names))
        return tuple(dict.fromkeys(names))

    def _several(self, given: object) -> str:
        """A hint where a list was given to an operator that takes rows of one other operator."""
        if not isinstance(given, list | tuple) or len(given) < 2:
            return ""
        names = ", ".join(name for name, spec in self.registry.items() if spec.many_inputs)
        return f" (of several only these take rows, by inputs = [...]: {names})"

    def whole_graph(self, flow: Flow, cyclic: frozenset[str], *, structure_is_sound: bool) -> None:
        """Rules of single operators that look at their neighbours, and whether the fields they read can be there."""
        if (instances := sum(node.instances for node in flow.nodes.values())) > MAX_INSTANCES:
            self.report("operators", f"at most {MAX_INSTANCES} instances of all operators together", str(instances))
        for node in flow.nodes.values():
            if node.name in cyclic or any(i not in flow.nodes for i in node.inputs):
                continue
            try:
                problems = (*self.registry[node.type].check(node, flow), *self.undivided(node, flow))
            except (KeyError, TypeError, AttributeError):
                if not self.problems:
                    raise
                continue  # the rule needs a faulty parameter or input: it is checked once that is corrected
            self.problems += problems
        if structure_is_sound and not self.faulty:
            self.problems += field_problems(flow, self.registry)
        self.problems += [loop_problem(loop) for loop in loops([flow], flow.name) if loop.certain]

    def undivided(self, node: Node, flow: Flow) -> Iterable[Problem]:
        """An operator with state of which copies are wanted, and nothing that says which rows belong together."""
        spec = self.registry[node.type]
        if node.instances > 1 and spec.role == "inner" and spec.divides_by is not None:
            keys = keys_above(flow, self.registry, node.name)
            if spec.divides_by(node, keys) == ():
                expected = "1, or a key_by before it (rows of one key meet in one instance)"
                yield Problem(f"operators.{node.name}.{INSTANCES.name}", expected, str(node.instances))


def loop_problem(loop: Loop) -> Problem:
    """The problem of a loop that is certain."""
    expected = f"a topic that does not lead back to a source ({loop.filter} takes it; each message would make another)"
    return Problem(f"operators.{loop.publisher.operator}.{loop.parameter}", expected, str(loop))


def _input_keys(spec: OperatorSpec) -> tuple[str, ...]:
    # A source is told elsewhere that it takes no input.
    return ("input", "inputs") if spec.many_inputs or spec.role == "source" else ("input",)


def unknown_keys(path: str, table: Mapping[str, Any], known: Iterable[str]) -> list[Problem]:
    """A problem per key of `table` that is not known, with the nearest that is."""
    known = tuple(dict.fromkeys(known))
    problems = []
    for key in table:
        if key not in known:
            near = get_close_matches(str(key), known, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            where = f"{path}.{key}" if path else str(key)
            problems.append(Problem(where, f"one of {', '.join(known)}{hint}", "an unknown key"))
    return problems
