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
    return Search(flows).loops(through)


class Search:
    """The ways among some flows. Only those of flows that are asked for, or that these lead to, are looked at."""

    def __init__(self, flows: Iterable[Flow]) -> None:
        self._flows: dict[str, list[Flow]] = {}
        self._readers = _Readers()
        self._found: dict[str, list[_Step]] = {}
        for flow in flows:
            self._flows.setdefault(flow.name, []).append(flow)
            self._readers.add(flow)

    def loops(self, through: str) -> list[Loop]:
        """See the function `loops`."""
        found: dict[tuple[FlowOperator, str], Loop] = {}
        for certain, parameter in ((True, "topic"), (True, "dead_letter"), (False, "")):
            for step in self._steps(through, parameter):
                closing = (step.publisher, step.parameter)
                if closing in found:
                    continue
                way = self._way_back(step, parameter)
                if way is not None:
                    shown = tuple(text for s in way for text in (_shown(s), s.topic))
                    closes = (*shown, f"{step.source.flow}.{step.source.operator}")
                    found[closing] = Loop(closes, step.publisher, step.parameter, step.filter, certain)
        return sorted(found.values(), key=lambda loop: not loop.certain)

    def _way_back(self, first: _Step, parameter: str) -> list[_Step] | None:
        """Steps that lead from the source of `first` to itself, `first` at the beginning; the shortest."""
        ways, seen = [[first]], {first.target}
        for way in ways:  # grows while it is walked
            at = way[-1].target
            if at == first.source:
                return way
            for step in self._steps(at.flow, parameter):
                if step.source == at and (step.target not in seen or step.target == first.source):
                    seen.add(step.target)
                    ways.append([*way, step])
        return None

    def _steps(self, name: str, parameter: str) -> list[_Step]:
        """Steps from the sources of a flow: the certain ones by a `parameter`, or all ("")."""
        if name not in self._found:
            flows = self._flows.get(name, ())
            rows = [step for flow in flows for step in _steps(flow, self._readers)]
            self._found[name] = [*rows, *(step for flow in flows for step in _dead_letters(flow, self._readers))]
        found = self._found[name]
        return [s for s in found if s.certain and s.parameter == parameter] if parameter else found


class _Readers:
    """Sources by the first level of their filters."""

    def __init__(self) -> None:
        self._by_level: dict[str, list[tuple[FlowOperator, Node, str]]] = {}

    def add(self, flow: Flow) -> None:
        for node in _sources(flow):
            if template := _template(node):
                first = template.filter.partition("/")[0]
                self._by_level.setdefault(first, []).append((FlowOperator(flow.name, node.name), node, template.filter))

    def of(self, topic: str) -> Iterator[tuple[FlowOperator, Node, str, int]]:
        """(operator, source, its filter, how the topic fits) of each source that may read a topic."""
        first = topic.partition("/")[0]
        for level in self._by_level if "{" in first else (first, "+", "#"):
            for operator, node, wanted in self._by_level.get(level, ()):
                if fit := topics_fit(topic, wanted):
                    yield operator, node, wanted, fit


def _shown(step: _Step) -> str:
    if step.parameter == ERRORS:
        return f"{step.source.flow} (on_error)"
    return f"{step.source.flow}.{step.publisher.operator}" + (" (dead_letter)" if step.parameter != "topic" else "")


def _steps(flow: Flow, readers: _Readers) -> Iterator[_Step]:
    for node in flow.nodes.values():
        topic = _template(node) if node.type == "publish" else None
        if topic is None:
            continue
        publisher = FlowOperator(flow.name, node.name)
        for origin, sure in _origins(flow, node).items():
            for target, _, wanted, fit in readers.of(topic.text):
                yield _Step(
                    FlowOperator(flow.name, origin), publisher, topic.text, target, wanted, sure and fit == SURE
                )


def _dead_letters(flow: Flow, readers: _Readers) -> Iterator[_Step]:
    """Steps of messages that a source cannot read, and of rows on which an operator fails."""
    errors = flow.on_error.topic.text.replace("{flow}", flow.name) if flow.on_error.topic else ""
    for node in _sources(flow):
        source = FlowOperator(flow.name, node.name)
        for topic, parameter in ((str(node.parameters.get("dead_letter", "")), "dead_letter"), (errors, ERRORS)):
            for target, reader, wanted, _ in readers.of(topic) if topic else ():
                certain = parameter == "dead_letter" and _reads(node) == _reads(reader)
                yield _Step(source, source, topic, target, wanted, certain, parameter)


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


def topics_fit(topic: str, filter_: str) -> int:
    """0 if no topic of a sink's template `topic` matches the filter, `SURE` if all do, else `MAYBE`."""
    wanted, levels = filter_.split("/"), topic.split("/")
    if levels[0].startswith("$") and wanted[0] in ("+", "#"):
        return 0
    fit = SURE
    for at, level in enumerate(wanted):
        if level == "#":
            return fit
        if at >= len(levels):
            return 0
        if level in ("+", levels[at]):
            continue
        if "{" not in levels[at]:
            return 0
        fit = MAYBE
    return fit if len(wanted) == len(levels) else 0
