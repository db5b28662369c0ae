"""`python -m tests.faults.large_batches N central run ...`: as `edgert central run ...`, but already a batch of N
contributions is a large one, as it takes 20,000 else, which no seed sends. What becomes of one is said in the log."""

from __future__ import annotations

import logging
import sys
from typing import Any
from unittest import mock

from edgert.central.fleet import table as fleet_table
from edgert.central.fleet.merge import WindowMerge
from edgert.central.fleet.table import FleetTable
from edgert.cli.main import main

BEGUN, DONE = "large batch begins", "large batch done"
log = logging.getLogger("tests.faults.large_batches")


def run(many: int, arguments: list[str]) -> int:
    """Returns the exit status."""
    write_many = FleetTable._write_many

    def told(self: FleetTable, landing: Any, touched: Any, lineage: Any, schema: Any) -> None:
        did: list[str] = []

        def noted(name: str) -> Any:
            do = getattr(WindowMerge, name)

            def note(table: WindowMerge, *given: Any) -> None:
                do(table, *given)
                did.append(name)

            return mock.patch.object(WindowMerge, name, note)

        log.info("%s: %d contributions", BEGUN, touched.rows)
        with noted("merge_few"), noted("merge"), noted("append"):
            write_many(self, landing, touched, lineage, schema)
        log.info("%s: %s", DONE, " and ".join(did))

    with mock.patch.object(fleet_table, "_MANY", many), mock.patch.object(FleetTable, "_write_many", told):
        return main(arguments)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
