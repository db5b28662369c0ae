"""Steps that all scenes of a board have: its first start, a look whether it counts, its way to a central side."""

from __future__ import annotations

import os
import time
from typing import Final

from images.qemu.central import Central
from images.qemu.machine import MINUTES_S, BootError, Machine
from images.qemu.outside import Outside

BOARD_ID: Final = "probe-board"


def say(text: str) -> None:
    print(f"boot: {text}", flush=True)


def counts(machine: Machine, central: Central) -> None:
    """The gateway is there, and its flow counts without being deployed again. With a central side, all messages have
    landed once."""
    own = Outside(machine)
    say(f"CONNACK after {own.connect():.0f} s (emulated; load {os.getloadavg()[0]:.1f})")
    own.client.loop_stop()
    machine.wait(lambda status: status["ingest"]["subscribed"], "the gateway")
    outside = Outside(machine, 0 if central.told is None else central.sensors)
    outside.connect()
    if central.told is None:
        outside.measure()
    else:
        outside.send(machine.minute())
        minutes = [minute for minute in machine.minutes() if minute >= central.told]
        say(central.landed("counts", minutes))
    outside.client.loop_stop()


def tell(machine: Machine, central: Central) -> None:
    """Off, a new file on its card, on: it takes sensors from a broker that keeps what it has, and has a central side.
    Results that wait since its first start land."""
    first = machine.minutes()[-1] + MINUTES_S
    machine.cut()
    machine.provision(central.provisioning())
    central.told = first
    machine.start()
    counts(machine, central)
    if "edgert.toml" in machine.left():
        raise BootError(f"expected a wiped file, got {machine.left()}")
    machine.wait(
        lambda status: status["central"]["connected"] and not status["central"]["outbox_batches"], "the outbox"
    )
    old = sum(n for start, n in central.windows("counts").items() if start < first)
    say(f"provisioned anew from its card: {old} messages that were counted before have landed, too")


def first_start(machine: Machine) -> None:
    outside = Outside(machine)
    load = os.getloadavg()[0]
    say(f"CONNACK {outside.connect():.0f} s after power on (emulated; load {load:.1f})")
    outside.wait(lambda: bool(outside.online()), "the gateway")
    gateway = outside.online()
    if gateway != BOARD_ID or "edgert.toml" in machine.left():
        raise BootError(f"expected {BOARD_ID} and a wiped file, got {gateway} and {machine.left()}")
    say(f"gateway {gateway} is online, and its provisioning file is wiped")
    if machine.has_slots:
        _agent(machine)
    outside.deploy(gateway)
    outside.measure()
    say("results of the flow came out")
    outside.client.loop_stop()


def _agent(machine: Machine) -> None:
    """The agent has the fleet's key, which its own account cannot read on the data partition."""
    for _ in range(60):
        status, said = machine.ask("systemctl is-active edgert-agent; /opt/edgert/bin/edgert fleet status 2>&1")
        if status == 0 and BOARD_ID in said:
            break
        time.sleep(2.0)
    else:
        log = machine.ask("journalctl -u edgert-agent --no-pager | tail -n 20")[1]
        raise BootError(f"expected the agent in its fleet, got:\n{said}\n{log}")
    say("the agent runs, with the fleet's key")
    _, said = machine.ask("grep -E '^Mem(Total|Available)' /proc/meminfo; stat -c '%a %U %G %n' /var/edgert/identity/*")
    total, available = (int(line.split()[1]) / 1024 for line in said.splitlines()[:2])
    modes = {line.split("/")[-1]: line.split()[:3] for line in said.splitlines()[2:]}
    if (modes["fleet.key"], modes["board.key"]) != (["600", "root", "root"], ["640", "root", "edgert-board"]):
        raise BootError(f"expected keys that few may read, got {modes}")
    say(f"{total - available:.0f} MiB of memory are in use")
