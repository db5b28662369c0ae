"""Less memory for operators than they have in a gateway."""

from __future__ import annotations

from edgert.operators.base.logic import Logic


def limit(limit_bytes: int, *operators: Logic) -> None:
    """Lets each hold no more than that of all its keys together."""
    for operator in operators:
        assert operator.memory is not None
        operator.memory.limit_bytes = limit_bytes


def limit_to_held(*operators: Logic) -> None:
    """Lets each hold no more than after its last batch: with another key of the same size there is one too many."""
    for operator in operators:
        assert operator.memory is not None
        limit(operator.memory.own_bytes, operator)
