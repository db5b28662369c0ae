"""Models that came by message: kept for flows that start later, and offered to running flows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from edgert.core.errors import DocumentError, EdgertError, Problem
from edgert.core.packing import pack, unpack
from edgert.flow.graph import Flow
from edgert.operators.fusion.chain import Chain
from edgert.operators.models.models import Model, model_untrusted
from edgert.operators.models.predict import Predictions
from edgert.runtime.checkpoint.restore import models_of
from edgert.runtime.flow_run import FlowRun

log = logging.getLogger(__name__)
MAX_MODELS: Final = 2_000
MAX_MODEL_BYTES: Final = 16 << 20
"""Bound on all model documents together, packed."""
_User = tuple[FlowRun, str, Predictions]
"""An operator of a flow that predicts with a model."""
_Taken = tuple[FlowRun, str, Predictions, Model]
"""A model that is to be given to an operator of a flow."""


class Models:
    """Models by name. A model for this gateway alone takes precedence over one for the whole fleet, in whatever order
    they came. Documents are checked beside the loop: a large one takes long.

    A restart begins without models: the broker retains them, and the checkpoints of their flows hold them. Until the
    broker has sent them, a new version of a flow begins with the models of its checkpoint.
    """

    def __init__(self, runs: Mapping[str, FlowRun], forward: Callable[[FlowRun, str, Mapping[str, Any]], None]) -> None:
        """`runs`: the running flows, kept up to date by the caller; `forward(run, operator, document)`: called with
        each model that an operator takes."""
        self._runs, self._forward = runs, forward
        self.most, self.most_bytes = MAX_MODELS, MAX_MODEL_BYTES
        self._own: dict[str, bytes] = {}
        """Model documents, packed: some take ten times as much memory as objects."""
        self._fleet: dict[str, bytes] = {}
        self._resumed: dict[str, dict[str, bytes]] = {}
        """Flow → its models from before this start, by name."""

    async def offer_untrusted(self, name: str, document: Mapping[str, Any], *, of_fleet: bool = False) -> list[str]:
        """Gives the model to every operator that predicts with it, or to none; returns these operators, as
        flow/operator. A model of the fleet is kept back (and no operator returned) while there is one for this gateway.

        Raises `DocumentError` with all objections of the operators.
        """
        taken, operators = await self._checked_untrusted(name, document)
        kind, packed = self._fleet if of_fleet else self._own, pack(document)
        if len(self._own.keys() | self._fleet.keys() | {name}) > self.most:
            raise EdgertError(f"expected at most {self.most} models, got one more: {name}")
        others = sum(map(len, (*self._own.values(), *self._fleet.values()))) - len(kind.get(name, b""))
        if (size := others + len(packed)) > self.most_bytes:
            raise EdgertError(f"expected at most {self.most_bytes:,} bytes of all models, got {size:,} with {name}")
        waits = of_fleet and name in self._own
        self._give(() if waits else taken)
        kind[name] = packed
        return [] if waits else operators

    async def forget(self, name: str, *, of_fleet: bool = False) -> list[str]:
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
                taken, operators = await self._checked_untrusted(name, unpack(self._fleet[name]))
            except DocumentError as error:
                got = "one that does not: the gateway's own stays in use"
                stays = Problem("", "a model of the fleet that fits, to take its place", got)
                raise DocumentError(f"model {name}", [stays, *error.problems]) from None
        for resumed in self._resumed.values():
            resumed.pop(name, None)
        (self._fleet if of_fleet else self._own).pop(name, None)
        self._give(taken)
        return operators

    async def _checked_untrusted(self, name: str, document: Mapping[str, Any]) -> tuple[list[_Taken], list[str]]:
        """(the model with the operators that take it, these as flow/operator), of the flows that run when this returns.
        Raises `DocumentError`."""
        asked: list[FlowRun] | None = None
        while asked != (runs := list(self._runs.values())):  # a flow that started meanwhile is asked, too
            asked, users = runs, _users(name, runs)
            taken, refused = await asyncio.to_thread(_sorted_untrusted, users, document)
            if not users:  # a mistake would be found when a flow that uses it starts, out of sight
                await asyncio.to_thread(model_untrusted, document, None)
        problems = [Problem(p.path, f"{p.expected} ({at})", p.got) for at, e in refused.items() for p in e.problems]
        if problems:
            raise DocumentError(f"model {name}", problems)
        return taken, list(dict.fromkeys(f"{run.flow.name}/{operator}" for run, operator, _ in users))

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

    async def started(self, run: FlowRun) -> list[DocumentError]:
        """Gives a starting flow the models that came before it; returns the errors of the models that do not fit."""
        known = {**self._resumed.get(run.flow.name, {}), **self._fleet, **self._own}
        taken, refused = await asyncio.to_thread(_fitting, run, known)
        self._give(taken)
        return refused

    async def go_on(self, run: FlowRun) -> None:
        """Gives a flow that goes on by another plan the models of this gateway: its state has the models that it used
        before, perhaps on another board."""
        known: dict[str, bytes] | None = None
        while known != (latest := {**self._fleet, **self._own}):  # one that came meanwhile is given again, after it
            known = latest
            taken, refused = await asyncio.to_thread(_fitting, run, known)
        if self._runs.get(run.flow.name) is not run:
            return
        self._give(taken)
        for error in refused:
            log.warning("flow %s goes on without a model that came before its plan: %s", run.flow.name, error)


def _fitting(run: FlowRun, packed: Mapping[str, bytes]) -> tuple[list[_Taken], list[DocumentError]]:
    """The models that operators of a flow take, and the errors of those that do not fit."""
    taken: list[_Taken] = []
    refused: list[DocumentError] = []
    for name, document in packed.items():
        if users := _users(name, (run,)):
            taken_of_it, refused_of_it = _sorted_untrusted(users, unpack(document))
            taken += taken_of_it
            refused += refused_of_it.values()
    return taken, refused


def _sorted_untrusted(
    users: Iterable[_User], document: Mapping[str, Any]
) -> tuple[list[_Taken], dict[str, DocumentError]]:
    """(the model with the operators that take it, the errors of those that do not, by flow/operator). All copies of an
    operator share one check and one model."""
    models: dict[str, Model] = {}
    refused: dict[str, DocumentError] = {}
    taken: list[_Taken] = []
    for run, operator, predictions in users:
        at = f"{run.flow.name}/{operator}"
        if at not in models and at not in refused:
            try:
                models[at] = predictions.checked_untrusted(operator, document)
            except DocumentError as error:
                refused[at] = error
        if at in models:
            taken.append((run, operator, predictions, models[at]))
    return taken, refused


def _users(name: str, runs: Iterable[FlowRun]) -> list[_User]:
    """Each operator that predicts with the model `name`."""
    return [
        (run, operator, stage.logic.predictions)
        for run in runs
        for stage in run.stages.values()
        if isinstance(stage.logic, Chain)
        for operator, node in stage.logic.predictions.nodes.items()
        if node.parameters["model"] == name
    ]
