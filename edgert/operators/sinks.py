"""Where rows leave a flow: `publish` (MQTT, at once) and `ship` (the central tables, exactly once)."""

from __future__ import annotations

from collections.abc import Iterable

from edgert.core.errors import Problem
from edgert.core.topic_template import TopicTemplate
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import OperatorSpec, Parameter


def _sink_topic(text: str) -> TopicTemplate:
    return TopicTemplate(text, sink=True)


def _check_ship(node: Node, flow: Flow) -> Iterable[Problem]:
    path = f"operators.{node.name}"
    for name in node.inputs:
        if name in flow.nodes and flow.nodes[name].type != "tumbling_window":
            expected = "a tumbling_window as input (its aggregates are what gateways can merge)"
            yield Problem(f"{path}.input", expected, f"{name!r}, which is a {flow.nodes[name].type}")
    others = [n.name for n in flow.nodes.values() if n.type == "ship" and n.name != node.name]
    if others:
        yield Problem(f"{path}.type", "one ship per flow (a flow has one landing table)", f"also {', '.join(others)}")


SPECS = (
    OperatorSpec(
        type="publish",
        role="sink",
        doc="Publishes each row over MQTT at once, to the broker that the flow reads from; may repeat after a crash.",
        parameters=(
            Parameter("topic", "string", "Topic; `{field}` is filled from the row.", parse=_sink_topic),
            Parameter("codec", "string", "How a row is written.", default="json", choices=("json", "senml")),
            Parameter("qos", "integer", "MQTT quality of service.", 1, minimum=0, maximum=1),
            Parameter("retain", "boolean", "Ask the broker to retain the message.", False),
        ),
    ),
    OperatorSpec(
        type="ship",
        role="sink",
        doc="Ships a window's contributions to the central tables, exactly once.",
        check=_check_ship,
    ),
)
