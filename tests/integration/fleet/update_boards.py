"""Boards with two slots that take updates: real gateways, and the commands that systemd runs on a board.

`rauc` and `systemctl` are scripts: a bundle is its name in the URL, as `http://updates/VERSION.raucb`. A version with
`broken` in it is a system whose gateway does not start; one with `evil` has a wrong signature.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any, Final

from tests.integration.rig import ROOT, Gateway, Rig

COMMAND: Final = """
import os, sys
from pathlib import Path
from edgert.cli.board import install, requests, slots, verb
from edgert.cli.main import main
folder = Path(sys.argv[1])
slots.COMMAND_LINE, slots.NOTES, slots.IMAGE = folder / "cmdline", folder / "notes", folder / "image.json"
slots.MARK_AGAIN_S, verb.POLL_S = 0.0, 0.1
install.wait_before = lambda attempt: 0.0
requests.REQUEST, requests.STATE = folder / "update.request", folder / "told/state.json"
os.geteuid = lambda: 0
sys.exit(main(["board", *sys.argv[2:]]))
"""
"""`edgert board` with the files of one of the test's boards."""
RAUC: Final = """
other() { if grep -q slot=A "$BOARD/cmdline"; then echo B; else echo A; fi; }
version() { basename "$1" .raucb; }
case $1 in
info) case $3 in *evil*) echo 'signature verification failed' >&2; exit 1 ;; esac
    printf '{"version": "%s"}' "$(version "$3")" ;;
install)
    echo '  0% Installing'; echo ' 50% Updating slots'
    [ ! -e "$BOARD/away" ] || { rm "$BOARD/away"; echo 'server not responding' >&2; exit 1; }
    version "$2" >"$BOARD/slot-$(other)"; other >"$BOARD/next" ;;
status) case $2 in mark-bad) other >"$BOARD/next" ;; esac ;;
esac
"""
SYSTEMCTL: Final = """
case $1 in
reboot) touch "$BOARD/reboot" ;;
show) printf 'Id=edgert-gateway.service\\nActiveState=active\\nNRestarts=0\\nResult=success\\n' ;;
esac
"""


class Board:
    """One board. Its thread does what systemd does: it starts the unit of a request, and the board when asked to."""

    def __init__(self, rig: Rig, name: str, **settings: dict[str, Any]) -> None:
        self.folder = rig.folder / f"board-{name}"
        (self.folder / "bin").mkdir(parents=True)
        for program, script in (("rauc", RAUC), ("systemctl", SYSTEMCTL), ("journalctl", "echo panic\n")):
            path = self.folder / "bin" / program
            path.write_text(f"#!/bin/sh\nBOARD={self.folder}\n{script}")
            path.chmod(0o755)
        updates = {"request": str(self.folder / "update.request"), "state": str(self.folder / "told/state.json")}
        self.gateway: Gateway = rig.gateway(name, updates=updates, **settings)
        self.begun: list[float] = []
        """When the unit was started for a request (monotonic)."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        (self.folder / "slot-A").write_text("1\n")
        (self.folder / "next").write_text("A\n")

    def start(self) -> None:
        """Returns at once: boards start beside each other."""
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()

    def history(self) -> list[tuple[str, str]]:
        """(event, version) of its updates."""
        lines = (self.folder / "notes/history.jsonl").read_text().splitlines()
        return [(event["event"], event["version"]) for event in map(json.loads, lines)]

    def _serve(self) -> None:
        self._boot()
        while not self._ending.wait(0.02):
            if (self.folder / "update.request").exists():
                self.begun.append(time.monotonic())
                self._command("requested")
            if (self.folder / "reboot").exists():
                (self.folder / "reboot").unlink()
                if self.gateway.running:
                    self.gateway.terminate()
                self._boot()

    def _boot(self) -> None:
        slot = (self.folder / "next").read_text().strip()
        version = (self.folder / f"slot-{slot}").read_text().strip()
        (self.folder / "cmdline").write_text(f"edgert.slot={slot}\n")
        (self.folder / "image.json").write_text(json.dumps({"board": "virt", "version": version, "updates": True}))
        broken = "broken" in version
        if not broken:
            self.gateway.start()
        self._command("confirm", "--steady", "0.2", "--within", "1" if broken else "240")

    def _command(self, *arguments: str) -> None:
        where = ("--socket", str(self.gateway.data / "control.sock"))
        with (self.folder / "log").open("a") as log:
            subprocess.run(
                [sys.executable, "-c", COMMAND, str(self.folder), *arguments, *where], cwd=ROOT, check=False,
                stdout=log, stderr=log, env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"},
            )  # fmt: skip
