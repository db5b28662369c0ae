"""The id table and its pages."""

from __future__ import annotations

import xxhash
import zstandard

from edgert.core.compression import compressed
from gateway.ingest.packet_ids import IDS, PAGE_IDS, IdTable


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


def test_an_emptied_table_empties_its_pages() -> None:
    table = IdTable()
    table.set(IDS - 1, 1, 1)
    table.take_dirty()
    table.clear()
    assert not dict(table.known())
    assert set(table.take_dirty().values()) == {b""}


def test_a_damaged_page_is_lost_and_no_other() -> None:
    table = IdTable()
    for packet_id in (1, PAGE_IDS, 2 * PAGE_IDS):
        table.set(packet_id, xxhash.xxh64_intdigest(b"%d" % packet_id), packet_id)
    pages = {page: compressed(raw) for page, raw in table.take_dirty().items()}
    flipped = bytearray(pages[0])
    flipped[len(flipped) // 2] ^= 1
    again = IdTable()
    again.load([(0, bytes(flipped)), (1, pages[1]), (2, b"short"), (3, zstandard.compress(b"other")), (-1, b"none"),
                (IDS // PAGE_IDS, bytes(16 * PAGE_IDS))])  # fmt: skip
    assert dict(again.known()) == {PAGE_IDS: PAGE_IDS}
    assert again.lost == {0, 2, 3}
    assert [again.is_lost(packet_id) for packet_id in (1, PAGE_IDS, 2 * PAGE_IDS)] == [True, False, True]
    assert set(again.take_dirty()) == {0, 2, 3}, "written anew"
    again.set(1, 1, 1)
    assert not again.is_lost(1)
    again.clear()
    assert not again.is_lost(2 * PAGE_IDS), "no redelivery can come"
