"""After a failed start of the board's own broker: sets a database aside that the broker cannot read.

    python3 -m provisioning.broker

The broker ends at each start whose database is damaged, so no sensor would be heard any more. Its flows, and what they
have taken in, are in the gateway's database; lost are messages that waited, and retained messages of sensors.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

DATABASE: Final = Path("/var/lib/mosquitto/mosquitto.db")
WITHIN_S: Final = 60.0
"""Longest wait for a broker that reads its database."""


def main() -> int:
    if DATABASE.exists() and is_damaged(DATABASE):
        aside = DATABASE.with_name(f"{DATABASE.name}.damaged")
        DATABASE.replace(aside)
        print(f"edgert-broker: the broker cannot read its database: set aside as {aside}, begun anew", file=sys.stderr)
    return 0


def is_damaged(database: Path) -> bool:
    """True if a broker does not start with the database and starts without it. The file stays as it is."""
    with tempfile.TemporaryDirectory(prefix="edgert-broker-", dir="/run") as folder:
        empty = Path(folder) / "empty"
        empty.mkdir()
        return not _starts(database.parent, Path(folder)) and _starts(empty, Path(folder))


def _starts(location: Path, folder: Path) -> bool:
    """Starts a broker that reads the database in `location` and that nobody reaches. It is killed, so that it writes
    nothing."""
    door, settings = folder / "door", folder / "mosquitto.conf"
    door.unlink(missing_ok=True)
    settings.write_text(
        f"user root\npersistence true\npersistence_location {location}/\nautosave_interval 0\n"
        f"listener 0 {door}\nallow_anonymous false\nlog_dest none\n"
    )
    ends = time.monotonic() + WITHIN_S
    with subprocess.Popen(["mosquitto", "-c", settings], stdin=subprocess.DEVNULL) as broker:
        try:
            while broker.poll() is None and time.monotonic() < ends:
                with socket.socket(socket.AF_UNIX) as client:
                    if client.connect_ex(str(door)) == 0:
                        return True
                time.sleep(0.05)
            return False
        finally:
            broker.kill()


if __name__ == "__main__":
    sys.exit(main())
