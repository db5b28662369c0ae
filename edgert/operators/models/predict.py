"""`predict`: the prediction of a model for each row; a step of a chain, which can be replaced while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgert.core.errors import DocumentError, Problem
from edgert.core.text.model_topic import model_name
from edgert.expr.compile import Map
from edgert.expr.tree import Literal
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.operators.base.fields import field_name, field_names, new_field
from edgert.operators.models.models import Model, model_untrusted


class Predictions:
    """The models of the `predict` operators of one chain."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.name: node for node in nodes if node.type == "predict"}
        self.models: dict[str, Model] = {
            name: self.checked_untrusted(name, node.parameters["initial"])
            for name, node in self.nodes.items()
            if node.parameters["initial"]
        }
        """Models by operator; an operator without a model yet is absent."""
        self._offered: dict[str, Model] = {}
        """The newest offered model of each operator: nobody takes any from the daemon's copy of a flow that runs in
        slots."""
        self._came: set[str] = set()
        self._unsaved: set[str] = set()

    def checked_untrusted(self, operator: str, document: Mapping[str, Any]) -> Model:
        """A model for an operator. Raises `DocumentError` with every fault."""
        return model_untrusted(document, frozenset(self.nodes[operator].parameters["fields"]))

    def offer(self, operator: str, model: Model) -> None:
        """Takes the model into use with the next batch. May be called from any thread."""
        self._offered[operator] = model

    def take(self) -> bool:
        """Takes what was offered; whether anything was."""
        taken = False
        while self._offered:  # one at a time: another thread may be offering
            operator, model = self._offered.popitem()
            self.models[operator] = model
            self._came.add(operator)
            self._unsaved.add(operator)
            taken = True
        return taken

    def step(self, node: Node) -> Map:
        """The present step of `node` on rows."""
        model = self.models.get(node.name)
        return Map({node.parameters["output"]: model.expression if model else Literal(None)})

    def lacking(self) -> list[str]:
        """Operators without a model."""
        return [name for name in self.nodes if name not in self.models]

    # -- checkpoints: models that came by a message

    def delta(self) -> dict[str, Any] | None:
        """Models that came since the last call."""
        changed, self._unsaved = self._unsaved, set()
        return {name: self.models[name].document for name in sorted(changed)} or None

    def snapshot(self) -> dict[str, Any] | None:
        """All."""
        return {name: self.models[name].document for name in sorted(self._came)} or None

    def restore(self, documents: Mapping[str, Any]) -> None:
        """Raises `ValueError` for a model that does not fit."""
        for name, document in documents.items():
            try:
                self.models[name] = self.checked_untrusted(name, document)
            except DocumentError as error:
                raise ValueError(str(error)) from None
            self._came.add(name)


def _check(node: Node, flow: Flow) -> Iterable[Problem]:
    initial, fields = node.parameters.get("initial"), node.parameters.get("fields")
    if initial and fields:
        try:
            model_untrusted(initial, frozenset(fields))
        except DocumentError as error:
            for problem in error.problems:
                path = f"operators.{node.name}.initial.{problem.path}".rstrip(".")
                yield Problem(path, problem.expected, problem.got)


SPECS = (
    OperatorSpec(
        type="predict",
        doc="Adds the prediction of a model (linear regression, decision tree). A message on `models/<model>` replaces "
        "it while the flow runs.",
        check=_check,
        fields=lambda node: FieldUse(frozenset(node.parameters["fields"]), frozenset((node.parameters["output"],))),
        stateless=True,
        parameters=(
            Parameter("model", "string", "Name of the model: one level of a topic.", parse=model_name),
            Parameter(
                "fields", "strings", "Fields that the model may look at.", parse_item=field_name, parse=field_names
            ),
            Parameter("output", "string", "Field for the prediction.", "prediction", parse=new_field),
            Parameter(
                "initial",
                "table",
                "The model to begin with, in its JSON form (docs/models.md). Without one the prediction is null, and "
                "counted, until one comes.",
                default={},
            ),
        ),
    ),
)
