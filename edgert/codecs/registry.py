"""Codecs by name: our own, and those that other packages declare under the entry point group `edgert.codecs`.

Nothing is imported before a flow asks for it. An entry point names a callable with the signature of `Factory`.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final, Protocol, cast

from edgert.codecs.base import Codec
from edgert.core.errors import DocumentError, Problem

GROUP: Final = "edgert.codecs"
BUILT_IN: Final = {
    "json": "edgert.codecs.json:JsonCodec",
    "senml": "edgert.codecs.senml:SenmlCodec",
    "value": "edgert.codecs.value:ValueCodec",
}
"""Found without entry points too, so that a source tree which was never installed works. Nobody can replace these."""


class Factory(Protocol):
    """The object that an entry point names: builds a codec that decodes `fields` (None: all), with options by
    keyword."""

    def __call__(self, fields: frozenset[str] | None, **options: Any) -> Codec: ...


def names() -> tuple[str, ...]:
    """Every codec that a flow may name, sorted."""
    return tuple(sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))}))


def codec_name(name: str) -> str:
    """`name`, if a flow may name it; else `ValueError` ("expected ..., got ...")."""
    if name not in BUILT_IN and name not in names():
        raise ValueError(f"expected one of {', '.join(names())}, got {name!r}")
    return name


def make(name: str, fields: frozenset[str] | None = None, **options: Any) -> Codec:
    """The codec `name`, told which fields the flow uses (None: all of them).

    Raises `DocumentError` for a name that nobody declares, and for an option that the codec does not have.
    """
    factory = _factory(name)
    parameters = inspect.signature(factory).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    unknown = sorted(set(options) - set(known))
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        expected = f"an option of the codec {name!r} ({', '.join(known)})"
        raise DocumentError(f"codec {name!r}", [Problem(option, expected, repr(option)) for option in unknown])
    return factory(fields, **options)


def _factory(name: str) -> Factory:
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return cast(Factory, getattr(import_module(module), attribute))
    for point in entry_points(group=GROUP, name=name):
        return cast(Factory, point.load())
    raise DocumentError("codec", [Problem("codec", f"one of {', '.join(names())}", repr(name))])
