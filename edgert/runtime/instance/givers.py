"""The stage of an instance that gave a message."""

from __future__ import annotations

from collections.abc import Sequence

from edgert.core.text.template_index import TemplateIndex
from edgert.operators.base.error_boundary import ErrorBoundary
from edgert.operators.base.logic import PlainMessage, foreign
from edgert.operators.sinks import PublishSink


class Givers:
    """A dead letter names its operator, other messages are known by their topic. If several stages publish to a topic,
    the first one counts."""

    def __init__(self, boundaries: Sequence[ErrorBoundary]) -> None:
        sinks = [(n, b.logic) for n, b in enumerate(boundaries) if isinstance(b.logic, PublishSink)]
        self._sinks = [n for n, _ in sinks]
        self._templates = TemplateIndex(sink.topic.text for _, sink in sinks)
        self._operators = {b.operator: n for n, b in reversed([*enumerate(boundaries)])}
        self._foreign = next((n for n, boundary in enumerate(boundaries) if foreign(boundary.logic)), 0)

    def stage(self, message: PlainMessage) -> int:
        """Index of the stage; 0 if none is known."""
        topic, *_, reason = message
        if reason:
            return self._operators.get(reason.partition(": ")[0], 0)
        found = self._templates.first(topic)
        return self._foreign if found is None else self._sinks[found]
