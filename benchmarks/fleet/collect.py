"""`python -m benchmarks.fleet.collect`: the collector's side of the soak. Lands a second's results each second, keeps
the tables every `--every-s`, and says (JSON) what it shipped and did when it reads a line.

A day of event time lasts `--day-s` here, and upkeep goes by these days, so that retention has something to do.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import logging
import sys
import threading
import time
from pathlib import Path
from typing import Final

from benchmarks.fleet.landings import Fleet, Landings
from edgert.central.upkeep.upkeep import Upkeep
from edgert.core.settings.central import Upkeep as Settings

START: Final = 1_760_054_400.0
"""A midnight (UTC)."""
DAY_S: Final = 86_400.0
KEEP_S: Final = 60.0
REST_S: Final = 20.0
log = logging.getLogger("benchmarks.fleet")


class Side:
    """Results on the calling thread, upkeep on another."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        window_s = DAY_S / options.day_s
        self._fleet = Fleet(options.gateways, options.sensors, 5, START, window_s=window_s, corrected=10)
        self._landings = Landings(root)
        self._second = 0
        self._every_s: float = options.every_s
        self.stopping = threading.Event()
        settings = Settings(compact_files=options.compact_files, retention_days=1)
        self._upkeep = Upkeep(
            str(root), settings, keep_s=KEEP_S, rest_s=REST_S, today=self._today, stopping=self.stopping
        )

    def _today(self) -> dt.date:
        return dt.datetime.fromtimestamp(self._fleet.start_of(self._second), dt.UTC).date()

    def run(self) -> dict[str, object]:
        """Until `stopping`."""
        upkeep = threading.Thread(target=self._keep)
        self._landings.land(self._fleet.opens())
        upkeep.start()
        started = time.monotonic()
        while not self.stopping.wait(max(0.0, started + self._second - time.monotonic())):
            self._landings.land(self._fleet.second(self._second))
            self._second += 1
        upkeep.join()
        return {
            "rows": self._fleet.rows,
            "windows": self._fleet.windows,
            "seconds": self._second,
            "upkeep": self._upkeep.totals.plain(),
        }

    def _keep(self) -> None:
        while not self.stopping.wait(self._every_s):
            for work in self._upkeep.round(thorough=True):
                if work.trouble:
                    log.warning("%s: %s", work.table, work.trouble)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--gateways", type=int, default=20)
    parser.add_argument("--sensors", type=int, default=10)
    parser.add_argument("--day-s", type=float, default=360.0)
    parser.add_argument("--every-s", type=float, default=60.0)
    parser.add_argument("--compact-files", type=int, default=40)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    side = Side(options.root, options)

    def listen() -> None:
        sys.stdin.readline()
        side.stopping.set()

    threading.Thread(target=listen, daemon=True).start()
    print(json.dumps(side.run()), flush=True)


if __name__ == "__main__":
    main()
