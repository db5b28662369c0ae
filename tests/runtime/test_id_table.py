"""The id table and its pages."""

from __future__ import annotations

import pytest

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
