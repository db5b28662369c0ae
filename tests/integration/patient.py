"""The gateway daemon, whose end waits `END_S` for the answers of a broker, so that a slow machine is no broker away."""

from __future__ import annotations

import sys
from typing import Final
from unittest import mock

import gateway.daemon
from gateway.__main__ import main

END_S: Final = 60.0

if __name__ == "__main__":
    with mock.patch.object(gateway.daemon, "END_S", END_S):
        sys.exit(main())
