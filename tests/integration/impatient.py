"""The gateway daemon, for which a slot hangs after `SILENT_S` without a report, so that a test waits no half minute."""

from __future__ import annotations

import sys
from typing import Final
from unittest import mock

from gateway.__main__ import main
from gateway.hosts import slot_process

SILENT_S: Final = 10.0

if __name__ == "__main__":
    with mock.patch.object(slot_process, "SILENT_S", SILENT_S):
        sys.exit(main())
