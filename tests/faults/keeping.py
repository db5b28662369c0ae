"""`python -m tests.faults.keeping ROOT`: upkeep of all tables, thorough, every second, until it is killed. What was
removed is kept for a minute, not for the hour that the settings ask for at least, and a day rests after seconds: no
seed lasts so long."""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

from edgert.central.upkeep.upkeep import Upkeep
from edgert.core import log as logs
from edgert.core.errors import EdgertError
from edgert.core.settings.central import Upkeep as Settings

EVERY_S: Final = 1.0
KEEP_S: Final = 60.0
REST_S: Final = 5.0
ROUND: Final = "a whole round"
DONE: Final = "something was kept"
TROUBLE: Final = "left for the next round"
"""What its log says, to be counted."""
log = logging.getLogger("tests.faults.keeping")


def main(root: str) -> None:
    """Old days stay: what is compared is all of the table."""
    logs.set_up("INFO", env={})
    upkeep = Upkeep(root, Settings(compact_files=4, retention_days=0), keep_s=KEEP_S, rest_s=REST_S)
    while True:
        time.sleep(EVERY_S)
        try:
            for work in upkeep.round(thorough=True):
                if work.trouble:  # another writer was quicker
                    log.info("%s: %s", TROUBLE, work)
                elif "/" in work.table and (work.compacted or work.deleted or work.log_deleted):  # of what is compared
                    log.info("%s: %s", DONE, work)
            log.info(ROUND)
        except EdgertError as error:  # another was quicker, or a table is just being made
            log.info("the next round tries again: %s", error)


def figures(text: str) -> dict[str, int]:
    """From its log."""
    return {
        "rounds of upkeep": text.count(ROUND),
        "tables kept": text.count(DONE),
        "tables left for the next round": text.count(TROUBLE),
    }


if __name__ == "__main__":
    main(sys.argv[1])
