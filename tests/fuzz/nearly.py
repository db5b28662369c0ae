"""Input from outside for fuzz tests: plain values, texts that hold them, and examples with parts that are nonsense."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from edgert.core.packing import pack

numbers = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(), st.sampled_from([0, -1, 2**31, 2**63, float("inf"), float("nan"), 1e308])
)
texts = st.one_of(st.text(max_size=20), st.sampled_from(["", "NaN", "1e999", "../x", "\0", "a/b", "#", "é" * 300]))
scalars = st.one_of(st.none(), st.booleans(), numbers, texts, st.binary(max_size=20))
plain = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=10,
)
"""What MessagePack, JSON or TOML may hold."""
NONSENSE: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 2**63, 1e308, float("inf"), float("nan"), "", "x", "NaN", "\0", b"", b"\xff",
    [], [None], {}, {"": {}},
)  # fmt: skip


def nearly(example: Any) -> st.SearchStrategy[Any]:
    """The example with up to three of its parts gone, or replaced by nonsense; sometimes something else altogether."""
    return st.one_of(st.integers(0, 2**32).map(lambda seed: harmed(example, Random(seed))), plain)


def harmed(example: Any, draw: Random) -> Any:
    found = deepcopy(example)
    for _ in range(draw.randint(0, 3)):
        found = _harm(found, draw)
    return found


def _harm(value: Any, draw: Random) -> Any:
    if not value or not isinstance(value, dict | list | tuple) or draw.random() < 0.15:
        return deepcopy(draw.choice(NONSENSE))
    if isinstance(value, tuple):
        return tuple(_harm(list(value), draw))
    key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
    if draw.random() < 0.2:
        del value[key]
    else:
        value[key] = _harm(value[key], draw)
    return value


def as_bytes(example: Any) -> st.SearchStrategy[bytes]:
    """Texts that hold nearly the example: in JSON or MessagePack, some cut off or with a bit flipped; or any bytes."""
    return st.one_of(
        st.builds(_bent, nearly(example).map(_packed), st.integers(0, 2**32)),
        st.builds(_bent, nearly(example).map(_as_json), st.integers(0, 2**32)),
        st.binary(max_size=200),
    )


def _packed(value: Any) -> bytes:
    try:
        return pack(value)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return b""


def _as_json(value: Any) -> bytes:
    return json.dumps(value, default=repr, skipkeys=True).encode(errors="surrogatepass")


def _bent(raw: bytes, seed: int) -> bytes:
    draw, bent = Random(seed), bytearray(raw)
    if bent and draw.random() < 0.3:
        bent[draw.randrange(len(bent))] ^= 1 << draw.randrange(8)
    if bent and draw.random() < 0.2:
        del bent[draw.randrange(len(bent)) :]
    return bytes(bent)
