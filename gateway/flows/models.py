"""Models that came by message: kept for flows that start later, and offered to running flows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from edgert.core.errors import DocumentError, EdgertError, Problem
from edgert.core.packing import pack, unpack
from edgert.flow.graph import Flow
from edgert.operators.fusion.chain import Fused
from edgert.operators.models.models import Model, model_untrusted
from edgert.operators.models.predict import Predictions
from edgert.runtime.checkpoint.restore import models_of
from edgert.runtime.flow_run import FlowRun

MAX_MODELS: Final = 1_000
MAX_MODEL_BYTES: Final = 16 << 20
"""Bound on all model documents together, packed."""
_Taken = tuple[FlowRun, str, Predictions, Model]
"""A model that is to be given to an operator of a flow."""


class Models:
    """Models by name. A model for this gateway alone takes precedence over one for the whole fleet, in whatever order
    they came.

    A restart begins without models: the broker retains them, and the checkpoints of their flows hold them. Until the
    broker has sent them, a new version of a flow begins with the models of its checkpoint.
    """

    def __init__(self, runs: Mapping[str, FlowRun], forward: Callable[[FlowRun, str, Mapping[str, Any]], None]) -> None:
        """`runs`: the running flows, kept up to date by the caller; `forward(run, operator, document)`: called with
        each model that an operator takes."""
        self._runs, self._forward = runs, forward
        self._own: dict[str, bytes] = {}
        """Model documents, packed: some take ten times as much memory as objects."""
        self._fleet: dict[str, bytes] = {}
        self._resumed: dict[str, dict[str, bytes]] = {}
        """Flow → its models from before this start, by name."""

    def offer_untrusted(self, name: str, document: Mapping[str, Any], *, of_fleet: bool = False) -> list[str]:
        """Gives the model to every operator that predicts with it, or to none; returns these operators, as
        flow/operator. A model of the fleet is kept back (and no operator returned) while there is one for this gateway.

        Raises `DocumentError` with all objections of the operators.
        """
        taken, operators = _checked_untrusted(name, document, self._runs.values())
        kind, packed = self._fleet if of_fleet else self._own, pack(document)
        if len(self._own.keys() | self._fleet.keys() | {name}) > MAX_MODELS:
            raise EdgertError(f"expected at most {MAX_MODELS} models, got one more: {name}")
        others = sum(map(len, (*self._own.values(), *self._fleet.values()))) - len(kind.get(name, b""))
        if (size := others + len(packed)) > MAX_MODEL_BYTES:
            raise EdgertError(f"expected at most {MAX_MODEL_BYTES:,} bytes of all models, got {size:,} with {name}")
        waits = of_fleet and name in self._own
        self._give(() if waits else taken)
        kind[name] = packed
        return [] if waits else operators

    def forget(self, name: str, *, of_fleet: bool = False) -> list[str]:
        """Forgets a model. Running flows keep it; flows that start from now on begin with the model of their document.
        A model of the fleet takes the place of a forgotten one of this gateway; returns the operators that take it, as
        flow/operator.

        Raises `DocumentError` with all objections of the operators to that model. Nothing is changed then: otherwise
        new flows would begin with another model than running flows have.
        """
        taken: list[_Taken] = []
        operators: list[str] = []
        if not of_fleet and name in self._own and name in self._fleet:
            try:
                taken, operators = _checked_untrusted(name, unpack(self._fleet[name]), self._runs.values())
            except DocumentError as error:
                got = "one that does not: the gateway's own stays in use"
                stays = Problem("", "a model of the fleet that fits, to take its place", got)
                raise DocumentError(f"model {name}", [stays, *error.problems]) from None
        for resumed in self._resumed.values():
            resumed.pop(name, None)
        (self._fleet if of_fleet else self._own).pop(name, None)
        self._give(taken)
        return operators

    def _give(self, taken: Iterable[_Taken]) -> None:
        for run, operator, predictions, model in taken:
            predictions.offer(operator, model)
            self._forward(run, operator, model.document)

    def resumed(self, flow: Flow, blobs: Sequence[bytes]) -> None:
        """Keeps the models in the state of a flow that resumes, for its later versions. Raises `DamagedError`,
        `MisfitError` as `models_of`."""
        models = models_of(blobs, flow)
        self._resumed[flow.name] = {flow.nodes[name].parameters["model"]: pack(model) for name, model in models.items()}

    def removed(self, flow: str) -> None:
        """Forgets the models of a removed flow: if it is deployed again, it is a new flow."""
        self._resumed.pop(flow, None)

    def started(self, run: FlowRun) -> list[DocumentError]:
        """Gives a starting flow the models that came before it; returns the errors of the models that do not fit."""
        refused = []
        for name, packed in {**self._resumed.get(run.flow.name, {}), **self._fleet, **self._own}.items():
            for _, operator, predictions in _operators(name, (run,)):
                try:
                    self._give([(run, operator, predictions, predictions.checked_untrusted(operator, unpack(packed)))])
                except DocumentError as error:
                    refused.append(error)
        return refused


def _checked_untrusted(
    name: str, document: Mapping[str, Any], runs: Iterable[FlowRun]
) -> tuple[list[_Taken], list[str]]:
    """(models with the operators that take them, the operators as flow/operator). Raises `DocumentError`."""
    taken: list[_Taken] = []
    problems: list[Problem] = []
    operators: list[str] = []
    for run, operator, predictions in _operators(name, runs):
        flow = run.flow.name
        first = f"{flow}/{operator}" not in operators  # of the copies of an operator
        if first:
            operators.append(f"{flow}/{operator}")
        try:
            taken.append((run, operator, predictions, predictions.checked_untrusted(operator, document)))
        except DocumentError as error:
            if first:
                problems += [Problem(p.path, f"{p.expected} ({flow}/{operator})", p.got) for p in error.problems]
    if problems:
        raise DocumentError(f"model {name}", problems)
    if not operators:
        model_untrusted(document, None)  # or a mistake would be found when a flow that uses it starts, out of sight
    return taken, operators


def _operators(name: str, runs: Iterable[FlowRun]) -> Iterable[tuple[FlowRun, str, Predictions]]:
    """(run, operator, its predictions) of each that predicts with the model `name`."""
    for run in runs:
        for place in run.places.values():
            if isinstance(place.logic, Fused):
                for operator, node in place.logic.predictions.nodes.items():
                    if node.parameters["model"] == name:
                        yield run, operator, place.logic.predictions
