"""All operator types that a flow may name: ours, and those that installed packages add."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from edgert.flow.spec import COMMON, OperatorSpec, Registry

ENTRY_POINTS: Final = "edgert.operators"
"""Entry point group of third parties; each entry point is an `OperatorSpec` or an iterable of them."""
_FAMILIES: Final = (
    "sources.source_spec",
    "stateless",
    "annotate",
    "windows",
    "count_windows",
    "joins",
    "observations",
    "models.predict",
    "models.training",
    "models.training_trees",
    "trackers",
    "sketched",
    "bloom",
    "sinks",
)


def registry_of(specs: Iterable[OperatorSpec]) -> Registry:
    """A registry by type name. Raises ValueError if two operators have one name."""
    known: dict[str, OperatorSpec] = {}
    for spec in specs:
        if spec.type in known:
            raise ValueError(f"expected each operator type once, got {spec.type} twice")
        known[spec.type] = spec
    return MappingProxyType(known)


def _own() -> Iterable[OperatorSpec]:
    for family in _FAMILIES:
        try:
            yield from import_module(f"edgert.operators.{family}").SPECS
        except ModuleNotFoundError as error:
            if error.name != f"edgert.operators.{family}":
                raise


REGISTRY: Final[Registry] = registry_of(_own())
"""The operators of edgert itself."""


def with_installed() -> tuple[Registry, Mapping[str, str]]:
    """`REGISTRY` and what installed packages add by entry point; and what could not be added: {entry point: why}.

    Reads the metadata of installed packages and imports the code they name: call it once, at start.
    """
    from importlib.metadata import entry_points

    known, failed = dict(REGISTRY), {}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            loaded = point.load()
            specs = (loaded,) if isinstance(loaded, OperatorSpec) else tuple(loaded)
            for spec in specs:
                if spec.stateless or (spec.role == "inner" and spec.logic is None):
                    raise ValueError(f"expected {spec.type} to have logic=... and not to be stateless (fusion is ours)")
                for taken in {p.name for p in spec.parameters} & {p.name for p in COMMON}:
                    raise ValueError(f"expected {spec.type} to have no parameter {taken} (every operator has)")
            known = dict(registry_of([*known.values(), *specs]))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a package does when it is imported, the gateway starts
            failed[f"{point.name} = {point.value}"] = f"{type(error).__name__}: {error}"
    return MappingProxyType(known), failed
