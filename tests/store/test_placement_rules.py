"""Rules of a flow's placement: kept for the agents, across a restart."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from edgert.store.database import Database


def test_rules_outlive_a_restart_with_the_fence_of_their_coordinator(tmp_path: Path) -> None:
    file = tmp_path / "gateway.db"
    with closing(Database(file, "g1")) as database:
        database.put_fence("f", 3)
        assert database.placement_rules() == {}
        database.put_placement_rules("f", 3, b"old")
        database.put_fence("f", 7)
        database.put_placement_rules("f", 7, b"new")
    with closing(Database(file, "g1")) as database:
        assert database.placement_rules() == {"f": (7, b"new")}
        assert database.fences() == {"f": 7}
        database.put_placement_rules("f", 8, None)
        assert database.placement_rules() == {}
