"""Factory resets of a board in QEMU: by its command, then by a file on its card with a provisioning file beside it."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from images.qemu.fleet import Fleet
from images.qemu.machine import ANSWER_S, BootError, Machine
from images.qemu.steps import first_start, say
from images.qemu.updates import EDGERT
from provisioning.on_board import RESET_FILE

LOOK: Final = (
    "cat /etc/machine-id; cd /opt/edgert/var; find . ! -type f -exec stat -c '%A %U %n' {} + | sort >/tmp/new; "
    "cd /var; find . ! -type f -exec stat -c '%A %U %n' {} + | sort | comm -23 /tmp/new -; echo end; "
    "find /var/edgert /var/lib/mosquitto /var/lib/private -type f"
)
"""The id; of the folders of a new card those that the board has not or with others' rights; files of the board."""
LEFT: Final = "/var/edgert/of-before"


def play(machine: Machine, fleet: Fleet) -> None:
    """The board is provisioned and has a flow, before and after. Raises `BootError`."""
    by_command(machine)
    by_file(machine, fleet)


def by_command(machine: Machine) -> None:
    before, old = len(machine.starts()), _look(machine)
    status, said = machine.ask(f"{EDGERT} board reset")
    if status == 0 or "Flows: 1; rows" not in said:
        raise BootError(f"expected to be told what would be lost, got status {status}: {said}")
    began = time.monotonic()
    machine.tell(f"{EDGERT} board reset --yes >/dev/null 2>&1")  # nobody reads what it says
    found = _gateway(machine, before + 1)
    expect_new(machine, old, found, "/identity/")
    say(f"reset by its command after {time.monotonic() - began:.0f} s: gateway {found['gateway']}, no flow, no keys")


def by_file(machine: Machine, fleet: Fleet) -> None:
    machine.ask(f"touch {LEFT}; sync")
    before, old = len(machine.starts()), _look(machine)
    machine.cut()
    machine.provision(fleet.provisioning())
    machine.lay(RESET_FILE, "")
    machine.start()
    expect_new(machine, old, _gateway(machine, before + 2), LEFT)
    if RESET_FILE in machine.left():
        raise BootError(f"expected {RESET_FILE} to be removed, got {machine.left()}")
    say("reset by a file on its card, which is removed; provisioned with the file beside it")
    first_start(machine)


def _look(machine: Machine) -> list[str]:
    status, said = machine.ask(LOOK)
    if status:
        raise BootError(f"expected a list of files, got status {status}: {said}")
    return said.splitlines()


def expect_new(machine: Machine, old: list[str], status: dict[str, Any], gone: str) -> None:
    """`old`: what `LOOK` said before; `gone`: a part of the paths of files that were there."""
    found = _look(machine)
    different, files = found[1 : found.index("end")], found[found.index("end") + 1 :]
    if status["flows"] or found[0] == old[0] or different or any(gone in name for name in files):
        raise BootError(f"expected a board as of a new card, got {status['flows']}, before {old}, now {found}")


def _gateway(machine: Machine, starts: int) -> dict[str, Any]:
    """The status of the gateway after so many starts."""
    ends = time.monotonic() + ANSWER_S
    while time.monotonic() < ends:
        if len(machine.starts()) >= starts:
            status, said = machine.ask(f"{EDGERT} status --json 2>/dev/null")
            if status == 0:
                found: dict[str, Any] = json.loads(said)
                return found
        time.sleep(1.0)
    raise BootError(f"waited {ANSWER_S:.0f} s for start {starts} and its gateway\n{machine.tail()}")
