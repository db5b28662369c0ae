"""Rules of the central side, broken one at a time: the other half of `mutants`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from typing import Any, Final
from unittest import mock

from edgert.central.collector.collector import Collector
from edgert.central.fleet import table
from edgert.central.fleet.merge import WindowMerge
from edgert.central.fleet.table import FleetTable
from edgert.central.landing import flow_table
from edgert.central.landing.lineage import Epoch, Opening, counted, unsettled
from edgert.central.tables.lease import TableLease
from tests.protocol import central_side, memory_table, spark
from tests.protocol.memory_table import MemoryTable, Row
from tests.protocol.spark import Lineage

Patch = AbstractContextManager[object]


def _acknowledged_before_it_has_landed() -> Patch:
    def land(self: Collector, enough: Callable[[], bool]) -> None:
        self._unlanded += self._acceptance.take()
        for batch in self._unlanded:
            key = (batch.gateway, batch.flow, batch.epoch, batch.stream)
            self.landed.set(key, batch.sequence)
            self._touch(key)
        if len(self._unlanded) > 2:  # later, unless it dies first
            self._landing.land(self._unlanded)
            self._unlanded.clear()

    return mock.patch.object(Collector, "_land", land)


def _checked_with_another_handle_than_written() -> Patch:
    def append(self: MemoryTable, data: Any, versions: Mapping[str, int]) -> None:
        self.let_others()
        if self.uri in self.store:
            self._seen = len(self.store[self.uri].commits)
        whole(self, data, versions)

    whole = MemoryTable.append
    return mock.patch.object(MemoryTable, "append", append)


def _every_epoch_counts() -> Patch:
    def counted(openings: Sequence[Any]) -> dict[tuple[str, int], None]:
        return {(o.gateway, o.epoch): None for o in openings}

    return mock.patch.object(central_side, "counted", counted)


def _new_contributions_are_added() -> Patch:
    """To what the fleet table says, instead of all of a window anew."""
    counts, merged = Lineage.counts, memory_table.merged

    def only_new(self: Lineage, row: Row) -> bool:
        return counts(self, row) and self.touches(row)

    def added(known: list[Row], new: list[Row], condition: str) -> list[Row]:
        key = memory_table.key_of(condition)
        before = {key(row): row["n"] for row in known}
        return merged(known, [row | {"n": row["n"] + before.get(key(row), 0)} for row in new], condition)

    return _all(
        mock.patch.object(Lineage, "counts", only_new),
        mock.patch.object(memory_table, "merged", added),
        mock.patch.object(spark, "merged", added),
    )


def who_lost_the_lease_writes_on() -> Patch:
    """In the midst of a batch neither the lease nor the number of the table's newest write stops him."""
    begin = FleetTable.__init__

    class Deaf(TableLease):
        def hold(self) -> None:
            pass

    def with_deaf(self: FleetTable, root: str, flow: str, lease: TableLease) -> None:
        begin(self, root, flow, lease)
        self._windows.lease = copy(lease)
        self._windows.lease.__class__ = Deaf

    def number(self: WindowMerge) -> int:
        return max(self._recorded() + 1, self.lease.token << 32)

    return _all(
        mock.patch.object(FleetTable, "__init__", with_deaf),
        mock.patch.object(WindowMerge, "_next", number),
        mock.patch.object(WindowMerge, "_written", lambda self, number: setattr(self, "_number", number)),
    )


def _the_epoch_that_landed_last_is_the_newest() -> Patch:
    def last(openings: Sequence[Opening]) -> Any:
        newest = {o.gateway: o.epoch for o in openings}
        return counted(o for o in openings if o.epoch <= newest[o.gateway])

    return _all(
        mock.patch.object(flow_table, "sorted", lambda rows, key: rows, create=True),
        mock.patch.object(table, "counted", last),
    )


def _what_became_void_is_not_recomputed() -> Patch:
    return mock.patch.object(table, "unsettled", return_value={})


def what_is_new_is_never_void() -> Patch:
    """Nobody can have counted it: true until a job loses its place and reads all anew."""

    def of_older(openings: Sequence[Opening], new: Sequence[Epoch]) -> Any:
        return {epoch: low for epoch, low in unsettled(openings, new).items() if epoch not in new}

    return mock.patch.object(table, "unsettled", of_older)


def _known_windows_are_appended() -> Patch:
    return mock.patch.object(WindowMerge, "known", return_value=None)


@contextmanager
def _all(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


CENTRAL_MUTANTS: Final[Mapping[Callable[[], Patch], int]] = {
    _acknowledged_before_it_has_landed: 0,
    _checked_with_another_handle_than_written: 120,
    _every_epoch_counts: 360,
    _new_contributions_are_added: 2_000,
    _the_epoch_that_landed_last_is_the_newest: 16,
    _what_became_void_is_not_recomputed: 8_005,
    _known_windows_are_appended: 2_000,
}
