"""The table `models`: one version at most is published, whatever comes; several processes may change it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.central.tables import models
from edgert.central.tables.models import KEPT, ModelRegistry, ModelVersion, current, rolled_back, with_new
from edgert.core.errors import EdgertError
from tests.central.worlds import WHEN, version


@given(st.lists(st.one_of(st.booleans(), st.just("back"), st.integers(1, 12)), max_size=30))
def test_whatever_comes_one_version_is_published_and_none_is_lost(steps: list[bool | str | int]) -> None:
    """True: a good one; False: a rejected one; "back": a rollback; a number: a rollback to that."""
    versions: list[ModelVersion] = []
    used: list[int] = []  # one after the other; without those that a rollback went back behind
    for step in steps:
        before = current(versions)
        if isinstance(step, bool):
            new = version(len(versions) + 1, models.PUBLISHED if step else models.REJECTED)
            versions = with_new(versions, new)
            assert current(versions) == (new if step else before)
            used += [new.version] if step else []
        elif versions:
            try:
                versions = rolled_back(versions, None if isinstance(step, str) else step, WHEN)
            except EdgertError:
                assert len(used) < 2 if step == "back" else step not in [v.version for v in versions]
                continue
            now = current(versions)
            assert now is not None
            assert now.pinned
            to = used[-2] if step == "back" else step
            assert now.version == to, "the one that was in use before, or the one that was asked for"
            used = [number for number in used if number < now.version] + [now.version]
        assert sum(v.state == models.PUBLISHED for v in versions) <= 1
        assert [v.version for v in versions] == list(range(len(versions), 0, -1))
        assert all(v.state == models.PUBLISHED for v in versions if v.pinned)


def test_the_oldest_are_forgotten_but_never_the_published_one() -> None:
    versions = [version(1)]
    for number in range(2, KEPT + 50):
        versions = with_new(versions, version(number, models.REJECTED))
    assert len(versions) == KEPT + 1
    assert current(versions) == version(1)


def test_what_is_rejected_pushes_out_nothing_that_a_rollback_may_go_to() -> None:
    versions = [version(1)]
    for number in range(2, KEPT + 50):
        versions = with_new(versions, version(number))
    assert [v.version for v in versions] == list(range(KEPT + 49, 49, -1))
    for number in range(KEPT + 50, 3 * KEPT):
        versions = with_new(versions, version(number, models.REJECTED))
    assert [v.version for v in versions if v.state != models.REJECTED] == list(range(KEPT + 49, 49, -1))
    assert [v.version for v in versions if v.state == models.REJECTED] == list(range(3 * KEPT - 1, 2 * KEPT - 1, -1))
    assert current(rolled_back(versions, None, WHEN)) is not None


def test_a_rollback_goes_to_what_was_in_use_before_also_if_that_was_rolled_back_once() -> None:
    versions = with_new([version(1)], version(2))
    for to, wanted in ((None, 1), (2, 2), (None, 1)):
        versions = rolled_back(versions, to, WHEN)
        now = current(versions)
        assert now is not None
        assert now.version == wanted


def test_a_rollback_goes_past_what_an_earlier_one_went_back_behind() -> None:
    versions = [version(1)]
    for number in (2, 3):
        versions = with_new(versions, version(number))
    versions = with_new(rolled_back(versions, 1, WHEN), version(4))
    assert [v.state for v in versions] == [models.PUBLISHED, models.ROLLED_BACK, models.ROLLED_BACK, models.REPLACED]
    assert current(rolled_back(versions, None, WHEN)) == replace(
        versions[-1], state=models.PUBLISHED, reason="rolled back to at 2026-03-01 00:00:00 UTC", pinned=True
    )


def test_a_rollback_says_what_there_is() -> None:
    with pytest.raises(EdgertError, match=r"older version that was published, got 2 \(published\), 1 \(rejected\)"):
        rolled_back(with_new([version(1, models.REJECTED)], version(2)), None, WHEN)
    with pytest.raises(EdgertError, match=r"got 7; there are 1 \(published\)"):
        rolled_back([version(1)], 7, WHEN)


def test_what_was_written_is_read_by_everybody(tmp_path: Path) -> None:
    registry, other = ModelRegistry(str(tmp_path)), ModelRegistry(str(tmp_path))
    assert (registry.names(), registry.versions("air"), registry.current("air")) == ([], [], None)
    with pytest.raises(EdgertError, match="none yet"):
        registry.known("air")
    registry.add("air", lambda known: version(len(known) + 1))
    other.add("it's", lambda known: version(len(known) + 1, name="it's"))
    registry.add("air", lambda known: version(len(known) + 1))
    assert other.names() == ["air", "it's"]
    told = "version 2: rmse 1 on the holdout"
    assert other.versions("air") == [version(2), replace(version(1), state=models.REPLACED, reason=told)]
    assert registry.roll_back("air", None, WHEN).version == 1
    assert other.current("air") == registry.versions("air")[1]
    with pytest.raises(EdgertError, match="nearest: air"):
        registry.known("aire")


def test_of_two_at_the_same_time_neither_is_lost(tmp_path: Path) -> None:
    root = str(tmp_path)
    ModelRegistry(root).add("air", lambda known: version(1))

    def add() -> None:
        for _ in range(4):
            ModelRegistry(root).add("air", lambda known: version(1 + max(v.version for v in known)))

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    versions = ModelRegistry(root).versions("air")
    assert [v.version for v in versions] == list(range(9, 0, -1))
    assert current(versions) == versions[0]
