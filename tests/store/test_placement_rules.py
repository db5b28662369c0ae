"""Rules of a flow's placement: kept for the agents, across a restart."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from edgert.store import plan_change
from edgert.store.database import Database


def test_rules_outlive_a_restart_with_the_fence_of_their_coordinator(tmp_path: Path) -> None:
    file = tmp_path / "gateway.db"
    with closing(Database(file, "g1")) as database:
        database.write(plan_change.put_fence, "f", 3)
        assert database.read(plan_change.rules) == {}
        database.write(plan_change.put_rules, "f", 3, b"old")
        database.write(plan_change.put_fence, "f", 7)
        database.write(plan_change.put_rules, "f", 7, b"new")
    with closing(Database(file, "g1")) as database:
        assert database.read(plan_change.rules) == {"f": (7, b"new")}
        assert database.read(plan_change.fences) == {"f": 7}
        database.write(plan_change.put_rules, "f", 8, None)
        assert database.read(plan_change.rules) == {}
