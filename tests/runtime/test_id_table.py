"""The id table and its pages."""

from __future__ import annotations

import pytest
import xxhash
import zstandard

from edgert.core.compression import compressed
from edgert.core.errors import PayloadError
from edgert.runtime.id_table import IDS, PAGE_IDS, IdTable


def test_pages_that_changed_are_given_once_and_again_when_their_commit_failed() -> None:
    table = IdTable()
    table.set(3, 2**64 - 1, 9)
    table.set(PAGE_IDS + 1, 5, 10)
    pages = table.take_dirty()
    assert (sorted(pages), table.take_dirty()) == ([0, 1], {})
    table.give_back(pages)
    assert table.take_dirty() == pages
    again = IdTable()
    again.load(pages.items())
    assert dict(again.known()) == {3: 9, PAGE_IDS + 1: 10}
    assert again.hashes[3] == 2**64 - 1


def test_pages_may_be_compressed() -> None:
    table, again = IdTable(), IdTable()
    for packet_id in range(PAGE_IDS):
        table.set(packet_id, xxhash.xxh64_intdigest(b"%d" % packet_id), 1_000_000 + packet_id)
    [page] = table.take_dirty().values()
    frame = compressed(page)
    assert len(frame) < 0.7 * len(page)
    again.load([(0, frame)])
    assert (list(again.known()), again.hashes) == (list(table.known()), table.hashes)
    with pytest.raises(PayloadError, match="expected a zstd frame"):
        again.load([(0, frame[:-1])])
    with pytest.raises(ValueError, match="expected a page of 4096 bytes, got page 0 of 5"):
        again.load([(0, zstandard.compress(b"other"))])


def test_an_emptied_table_empties_its_pages() -> None:
    table = IdTable()
    table.set(IDS - 1, 1, 1)
    table.take_dirty()
    table.clear()
    assert not dict(table.known())
    assert set(table.take_dirty().values()) == {b""}


@pytest.mark.parametrize("page", [(0, b"short"), (-1, bytes(16 * PAGE_IDS)), (IDS // PAGE_IDS, bytes(16 * PAGE_IDS))])
def test_a_page_of_another_size_is_refused(page: tuple[int, bytes]) -> None:
    with pytest.raises(ValueError, match="expected a page"):
        IdTable().load([page])
