"""Less memory for operators than they have in a gateway."""

from __future__ import annotations

from edgert.operators.base.logic import Logic


def limit(limit_bytes: int, *operators: Logic) -> None:
    """Lets each hold no more than that of all its keys together."""
    for operator in operators:
        assert operator.memory is not None
        operator.memory.limit_bytes = limit_bytes
