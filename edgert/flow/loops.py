"""Flows that read what they publish: each message then makes another one, as fast as the gateway can.

A way goes from a source through its flow to an operator that publishes, and from there by its topic to a source again.
It is *certain* if every topic that the operator may give matches the source's filter and no filter stands between them;
else it is possible: field values decide. Dead letters are messages, too. What one source cannot read, another one that
reads by the same settings cannot either: a way of such dead letters alone is certain. A row on which an operator failed
makes a possible one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.graph import Flow, Node

DROPPING: Final = frozenset(("filter", "bloom_filter"))
"""Types of operators that exist to let only some rows through: a row that made a message may not make the next.
The same is true of a table or a join that drops rows for which it has nothing (`missing = "drop"`)."""

ERRORS: Final = "on_error.topic"
READING: Final = ("codec", "value_type", "time", "time_field", "time_unit", "time_zone")
"""Parameters of a source that decide which payloads it can read."""

POSSIBLE_LOOP: Final = "the flow may read what it publishes, and each message would make another: {}"


class FlowOperator(NamedTuple):
    """An operator of a flow."""

    flow: str
    operator: str


@dataclass(frozen=True, slots=True)
class Loop:
    """A way that ends where it began."""

    way: tuple[str, ...]
    """For people: topics and flows by turns."""
    publisher: FlowOperator
    """The operator that closes it."""
    parameter: str
    """Where that operator's topic stands in the document."""
    filter: str
    """The topic filter of the source that reads what it publishes."""
    certain: bool

    def __str__(self) -> str:
        return " -> ".join(self.way)


class _Step(NamedTuple):
    """From a source to the next source."""

    source: FlowOperator
    publisher: FlowOperator
    topic: str
    target: FlowOperator
    filter: str
    certain: bool
    parameter: str = "topic"


def loops(flows: Iterable[Flow], through: str) -> list[Loop]:
    """The loops that flow `through` closes, the certain ones first; one for each topic of it."""
    flows = tuple(flows)
    steps = [*_steps(flows), *_dead_letters(flows)]
    rows = [step for step in steps if step.certain and step.parameter == "topic"]
    unread = [step for step in steps if step.certain and step.parameter == "dead_letter"]
    found: dict[tuple[FlowOperator, str], Loop] = {}
    for certain, among in ((True, rows), (True, unread), (False, steps)):
        for step in among:
            closing = (step.publisher, step.parameter)
            if step.source.flow != through or closing in found:
                continue
            way = _way_back(step, among)
            if way is not None:
                shown = tuple(text for s in way for text in (_shown(s), s.topic))
                closes = (*shown, f"{step.source.flow}.{step.source.operator}")
                found[closing] = Loop(closes, step.publisher, step.parameter, step.filter, certain)
    return sorted(found.values(), key=lambda loop: not loop.certain)


def _shown(step: _Step) -> str:
    if step.parameter == ERRORS:
        return f"{step.source.flow} (on_error)"
    return f"{step.source.flow}.{step.publisher.operator}" + (" (dead_letter)" if step.parameter != "topic" else "")


def _way_back(first: _Step, steps: list[_Step]) -> list[_Step] | None:
    """Steps that lead from the source of `first` to itself, `first` at the beginning; the shortest."""
    ways, seen = [[first]], {first.target}
    for way in ways:  # grows while it is walked
        at = way[-1].target
        if at == first.source:
            return way
        for step in steps:
            if step.source == at and (step.target not in seen or step.target == first.source):
                seen.add(step.target)
                ways.append([*way, step])
    return None


def _steps(flows: Iterable[Flow]) -> Iterator[_Step]:
    flows = tuple(flows)
    sources = [(FlowOperator(flow.name, node.name), _template(node)) for flow in flows for node in _sources(flow)]
    for flow in flows:
        for node in flow.nodes.values():
            topic = _template(node) if node.type == "publish" else None
            if topic is None:
                continue
            for origin, sure in _origins(flow, node).items():
                for target, wanted in sources:
                    fit = _fit(topic.text, wanted.filter) if wanted else 0
                    if wanted and fit:
                        publisher = FlowOperator(flow.name, node.name)
                        yield _Step(
                            FlowOperator(flow.name, origin),
                            publisher,
                            topic.text,
                            target,
                            wanted.filter,
                            sure and fit == SURE,
                        )


def _dead_letters(flows: Iterable[Flow]) -> Iterator[_Step]:
    """Steps of messages that a source cannot read, and of rows on which an operator fails."""
    flows = tuple(flows)
    readers = [(FlowOperator(flow.name, node.name), node) for flow in flows for node in _sources(flow)]
    for flow in flows:
        errors = flow.on_error.topic.text.replace("{flow}", flow.name) if flow.on_error.topic else ""
        for node in _sources(flow):
            source = FlowOperator(flow.name, node.name)
            for topic, parameter in ((str(node.parameters.get("dead_letter", "")), "dead_letter"), (errors, ERRORS)):
                for target, reader in readers:
                    wanted = _template(reader)
                    if topic and wanted and _fit(topic, wanted.filter):
                        certain = parameter == "dead_letter" and _reads(node) == _reads(reader)
                        yield _Step(source, source, topic, target, wanted.filter, certain, parameter)


def _reads(source: Node) -> list[object]:
    return [source.parameters.get(name) for name in READING]


def _sources(flow: Flow) -> Iterator[Node]:
    return (node for node in flow.nodes.values() if not node.inputs)


def _template(node: Node) -> TopicTemplate | None:
    topic = node.parameters.get("topic")
    return topic if isinstance(topic, TopicTemplate) else None


def _origins(flow: Flow, node: Node) -> dict[str, bool]:
    """The sources whose rows come to `node`; True for a source with a path to it on which no operator drops rows."""
    found: dict[str, bool] = {}
    waiting, seen = [(node, True)], set[tuple[str, bool]]()
    for at, sure in waiting:  # grows while it is walked
        if (at.name, sure) in seen:
            continue
        seen.add((at.name, sure))
        if not at.inputs:
            found[at.name] = found.get(at.name, False) or sure
        sure = sure and at.type not in DROPPING and at.parameters.get("missing") != "drop"
        waiting += [(flow.nodes[name], sure) for name in at.inputs if name in flow.nodes]
    return found


MAYBE: Final = 1
SURE: Final = 2


def _fit(topic: str, filter_: str) -> int:
    """0 if no topic of a sink's template `topic` matches the filter, `SURE` if all do, else `MAYBE`."""
    wanted, levels = filter_.split("/"), topic.split("/")
    if levels[0].startswith("$") and wanted[0] in ("+", "#"):
        return 0
    fit = SURE
    for place, level in enumerate(wanted):
        if level == "#":
            return fit
        if place >= len(levels):
            return 0
        if level in ("+", levels[place]):
            continue
        if "{" not in levels[place]:
            return 0
        fit = MAYBE
    return fit if len(wanted) == len(levels) else 0
