"""`bloom_filter`: lets rows through by whether their key is in a set that a Bloom filter holds.

known        rows whose key is in the list that the document gives
first_seen   rows whose key did not come before; what came is learned, in bounded memory
"""

from __future__ import annotations

import math
import re
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, Final

from edgert.core.batch import Batch, RawBatch, Row
from edgert.core.errors import Problem
from edgert.core.text.long_text import SHORT
from edgert.flow.graph import Flow, Node
from edgert.flow.parameters import MAX_ITEMS
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.operators.base.fields import field_name, field_names, key_reader
from edgert.operators.base.inline import Fields, Inlinable, Lines
from edgert.operators.base.logic import Build, Emission, Now, emission_of
from edgert.sketches.bloom import Bloom, DoubleFilter
from edgert.sketches.hashing import hash_of

REMEMBERED: Final = 4_096
"""Keys of which `known` remembers the verdict, unless they are long."""
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""A number as JSON spells it; with one of the groups it is no integer."""


class _BloomFilter(Inlinable, ABC):
    """Common part of both modes."""

    at_once = True

    def __init__(self, fields: Sequence[str]) -> None:
        super().__init__()
        self._fields = tuple(fields)
        self._key_of = key_reader(fields)

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        return emission_of(batch, self._passed(batch.rows) if batch.rows else [])

    @abstractmethod
    def _passed(self, rows: Sequence[Row]) -> list[Row]:
        """Rows that go through."""

    def _lacked(self, rows: int) -> None:
        if rows:
            self.drops["no key"] += rows


class _Verdicts(dict[Any, bool | None]):
    """Cache of verdicts by key: true if the key goes through, None if it is no key. Most rows come from few devices."""

    def __init__(self, known: Bloom) -> None:
        super().__init__()
        self._known = known

    def __missing__(self, key: Any) -> bool | None:
        verdict = self.judged(key)
        if type(key) is str and len(key) <= SHORT:  # to a dictionary 1 and true are one key
            if len(self) >= REMEMBERED:
                self.clear()
            self[key] = verdict
        return verdict

    def judged(self, key: Any) -> bool | None:
        """Returns the verdict on any value, without remembering it."""
        hashed = hash_of(key)
        return None if hashed is None else hashed in self._known


class KnownKeys(_BloomFilter):
    """Rows whose key is in a list that never changes: no state."""

    def __init__(self, fields: Sequence[str], values: Sequence[str], rate: float) -> None:
        super().__init__(fields)
        hashes = {hashed for value in values for hashed in _hashes(value)}
        known = Bloom(len(hashes), rate)
        for hashed in hashes:
            known.add(hashed)
        self.verdicts = _Verdicts(known)

    def _passed(self, rows: Sequence[Row]) -> list[Row]:
        keys = list(map(self._key_of, rows))
        try:
            verdicts = list(map(self.verdicts.__getitem__, keys))
        except TypeError:  # a key that no dictionary takes
            verdicts = list(map(self.verdicts.judged, keys))
        self._lacked(verdicts.count(None))
        return list(compress(rows, verdicts))

    def inline(self, row: Fields, source: int) -> Lines:
        return Lines(
            check=[f"verdict = verdicts[{row.key(self._fields)}]", "if not verdict:", "    break"],
            gone=["missing += verdict is None"],
            row=row,
            setup=["missing = 0"],
            finish=["lacked(missing)"],
            constants={"verdicts": self.verdicts, "lacked": self._lacked},
        )


def _hashes(value: str) -> list[int]:
    """Returns the hashes of a key of a document: of the text, and for a number also of the double that a codec may make
    of it, and of the integer, of which a double may lack digits."""
    kinds: list[str | float] = [value]
    spelled = _NUMBER.fullmatch(value)
    if spelled and math.isfinite(double := float(value)):  # so it is short enough for an integer, too
        kinds += [double] if any(spelled.groups()) else [double, int(value)]
    return [hashed for kind in kinds if (hashed := hash_of(kind)) is not None]


class FirstSeen(_BloomFilter):
    """Rows whose key is new. State: the keys seen (`edgert.sketches.bloom.DoubleFilter`)."""

    def __init__(self, fields: Sequence[str], expected: int, rate: float) -> None:
        super().__init__(fields)
        self.seen = DoubleFilter(expected, rate)
        self._said = 0
        """Part of `DoubleFilter.forgotten` that was counted before, or came from a checkpoint."""
        self._inserted = array("Q")
        self._all = False
        """Since the last delta came more than it is worth to tell one by one."""

    def _passed(self, rows: Sequence[Row]) -> list[Row]:
        seen, hashes = self.seen, list(map(hash_of, map(self._key_of, rows)))
        current, previous, insert = seen.current, seen.previous, self._insert
        out = []
        for row, hashed in zip(rows, hashes, strict=True):
            if hashed is None or hashed in current:
                continue
            if hashed not in previous:
                out.append(row)
            insert(hashed)
            current, previous = seen.current, seen.previous
        self._inserted_all(hashes.count(None))
        return out

    def _insert(self, hashed: int) -> None:
        self.seen.insert(hashed)
        if not self._all:
            self._inserted.append(hashed)

    def _inserted_all(self, missing: int) -> None:
        """Behind the rows of a batch."""
        self._lacked(missing)
        if len(self._inserted) > len(self.seen.current.array) // 8:
            self._all, self._inserted = True, array("Q")
        if forgotten := self.seen.forgotten - self._said:
            self.drops["forgotten (keys)"] += forgotten
            self._said += forgotten

    def inline(self, row: Fields, source: int) -> Lines:
        check = ["if hashed is None or hashed in seen.current or hashed in seen.previous:", "    break"]
        return Lines(
            check=[f"hashed = hash_of({row.key(self._fields)})", *check],
            effect=["insert(hashed)"],
            gone=["if hashed is None:", "    missing += 1", "elif hashed not in seen.current:", "    insert(hashed)"],
            row=row,
            setup=["missing = 0"],
            finish=["inserted_all(missing)"],
            constants={
                "hash_of": hash_of, "seen": self.seen, "insert": self._insert, "inserted_all": self._inserted_all,
            },
        )  # fmt: skip

    def delta(self) -> Any | None:
        if self._all:
            self._all = False
            return self._whole()
        if not self._inserted:
            return None
        inserted, self._inserted = self._inserted, array("Q")
        if sys.byteorder == "big":
            inserted.byteswap()
        return {"inserted": inserted.tobytes()}

    def snapshot(self) -> Any | None:
        return self._whole() if self.seen.count else None

    def _whole(self) -> dict[str, Any]:
        seen = self.seen
        return {
            "filters": [bytes(seen.previous.array), bytes(seen.current.array)],
            "counts": [seen.previous_count, seen.count],
        }

    def restore(self, state: Any) -> None:
        seen = self.seen
        if "inserted" in state:
            told: bytes = state["inserted"]
            for at in range(0, len(told), 8):
                seen.insert(int.from_bytes(told[at : at + 8], "little"))
            self._said = seen.forgotten
            return
        for kept, bits in zip((seen.previous, seen.current), state["filters"], strict=True):
            if len(bits) != len(kept.array):
                raise ValueError(f"expected a filter of {len(kept.array)} bytes, got one of {len(bits)}")
            kept.array[:] = bits
        seen.previous_count, seen.count = state["counts"]


def _check(node: Node, flow: Flow) -> Iterable[Problem]:
    p, path = node.parameters, f"operators.{node.name}"
    if p["mode"] == "known" and not p["values"]:
        yield Problem(f"{path}.values", 'the keys to let through, or mode = "first_seen"', "nothing")
    if p["mode"] == "first_seen" and node.instances > 1:
        # as one, the filters of several copies would hold more than they can, and take most keys for repetitions
        yield Problem(f"{path}.instances", '1 with mode = "first_seen"', str(node.instances))
    if p["mode"] == "first_seen" and p["values"]:
        yield Problem(f"{path}.values", 'none with mode = "first_seen"', f"{len(p['values'])} values")
    if p["mode"] == "known" and len(p["fields"]) > 1:
        yield Problem(f"{path}.fields", "one field, with which values are compared", ", ".join(p["fields"]))


def _make(build: Build) -> _BloomFilter:
    p = build.node.parameters
    if p["mode"] == "known":
        return KnownKeys(p["fields"], p["values"], p["false_positive_rate"])
    return FirstSeen(p["fields"], p["expected_items"], p["false_positive_rate"])


_VALUES: Final = (
    f"With `known`: the keys to let through, {MAX_ITEMS:,} at most. "
    "Text that is a number as JSON spells it (`17`, `-0.5`, `1e5`; not `007`, `+5`, `.5`) stands for the number as "
    "well, an integer of more than 15 digits also for the double next to it: SenML has no others, JSON none beyond 64 "
    "bits."
)
SPECS = (
    OperatorSpec(
        type="bloom_filter",
        doc="Lets rows through whose key is in a list (`known`), or did not come before (`first_seen`: repetitions "
        "go). A Bloom filter holds the keys, in bounded memory: `known` lets a few others through as well, "
        "`first_seen` takes a few new ones for repetitions.",
        check=_check,
        fields=lambda node: FieldUse(frozenset(node.parameters["fields"])),
        keyed=False,
        logic=_make,
        divides_by=lambda node, keys: None,
        parameters=(
            Parameter(
                "fields",
                "strings",
                "The fields that make the key.",
                ["source"],
                parse_item=field_name,
                parse=field_names,
            ),
            Parameter("mode", "string", "Which rows go through.", "known", choices=("known", "first_seen")),
            Parameter("values", "strings", _VALUES, []),
            Parameter(
                "expected_items",
                "integer",
                "With `first_seen`: the newest different keys that are certainly remembered; older ones are forgotten, "
                "and counted. At a rate of 0.01 each takes 2.8 bytes, with what is new since the last checkpoint 4.4 "
                "at most.",
                100_000,
                minimum=1,
                maximum=10_000_000,
            ),
            Parameter(
                "false_positive_rate",
                "number",
                "The greatest part of other keys that is taken for one of these.",
                0.01,
                minimum=1e-6,
                maximum=0.5,
            ),
        ),
    ),
)
