"""Checks of a board's system: those of the tests in QEMU that make sense on hardware."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from hardware.verdict import Answer, HardwareCheck, Verdict, bad, documents, good, good_if, last_line, pairs, skipped

ABOUT: Final = "cat /etc/edgert/image.json 2>/dev/null"
STATUS: Final = "edgert status --json"
UNITS: Final = (
    "systemctl show --property=Id,LoadState,ActiveState,ConditionResult,NRestarts "
    "edgert-gateway.service mosquitto.service edgert-agent.service"
)
FAILED: Final = "systemctl list-units --state=failed --plain --no-legend --no-pager && echo 'end of units'"
EXPOSURE: Final = (
    "for unit in edgert-gateway edgert-agent; do"
    " systemd-analyze security --no-pager $unit.service 2>/dev/null | grep 'Overall exposure'; done; true"
)
MOST_EXPOSED: Final = {"edgert-gateway.service": 2.0, "edgert-agent.service": 2.5}
"""The most exposed that a service may be, as systemd reckons: 0 nothing, 10 all (tests/images/test_units.py)."""
SLOT: Final = (
    "edgert board status --json; echo; echo root $(findmnt -n -o SOURCE /);"
    " for slot in a b; do echo slot-$slot $(readlink -f /dev/edgert/slot-$slot); done"
)
ATTEMPTS: Final = f"{ABOUT} || exit 9; rauc status --output-format=json"
NO_FILE: Final = 9
"""Exit status of a command that lacks what it is about."""
UPDATES: Final = f"{ABOUT} || exit 9; echo; edgert board status --json"
MOUNTS: Final = "cat /proc/self/mounts"
SWAPS: Final = "cat /proc/swaps"
JOURNAL: Final = "find /var/log/journal /run/log/journal -name '*.journal' 2>/dev/null; echo end"
IDENTITY: Final = (
    "cmp -s /etc/machine-id /var/edgert/machine-id && echo same;"
    " cd /var/edgert/identity 2>/dev/null && stat -c '%n %a %U %G' *; true"
)
KEYS: Final = {"fleet.key": "600 root root", "board.key": "640 root edgert-board"}
WATCHDOG: Final = (
    "systemctl show --property=RuntimeWatchdogUSec;"
    " ls -l /proc/1/fd 2>/dev/null | grep -q /dev/watchdog && echo held=yes;"
    " for folder in /sys/class/watchdog/watchdog*; do"
    " [ -d $folder ] && echo device=${folder##*/} $(cat $folder/identity $folder/state 2>/dev/null); done; true"
)
CLOCK: Final = "timedatectl show --property=NTPSynchronized; echo now=$(date +%s)"
NAMES: Final = "grep ^nameserver /etc/resolv.conf; resolvectl dns --no-pager 2>/dev/null; echo end"
MEMORY: Final = "cat /proc/meminfo"
KERNEL_LOG: Final = (
    'log=$(dmesg 2>/dev/null) || log=$(journalctl -k -q -o cat --no-pager); [ -n "$log" ] || exit 9;'
    " echo \"$log\" | grep -iE 'under-?voltage|I/O error|mmc[0-9]+: .*(error|timeout)|Out of memory|EXT4-fs error'"
    " | tail -n 20; echo end"
)
STUB: Final = "127.0.0.53"
"""systemd-resolved on the board itself."""
MOST_OFF_S: Final = 5.0
"""A board's clock may differ by this much from this machine's. Event times of sensors come from either."""
LEAST_FREE: Final = 0.1
"""The part of the memory that should be available."""
NOT_DONE: Final = ("rolled back", "failed")
"""Ends of an update that are bad; one that was refused has changed nothing."""


def image(board: str) -> Callable[[Answer], Verdict]:
    """Returns the judge of whether the board runs the image of `board`."""

    def judge(answer: Answer) -> Verdict:
        if not answer.text.strip():
            return bad(f"expected an image of {board}, got a board without /etc/edgert/image.json")
        about = documents(answer.text)[0]
        return good_if(about["board"] == board, f"board {about['board']}, version {about['version']}")

    return judge


def gateway(answer: Answer) -> Verdict:
    """All parts of the gateway do their work."""
    if "{" not in answer.text:
        return bad(f"it does not answer: {last_line(answer.text)}")
    status = documents(answer.text)[0]
    wrong = [part["text"] for part in status["health"]["parts"] if part["level"] == "bad"]
    if wrong or not status["ingest"]["subscribed"]:
        return bad("; ".join(wrong) or "it has not subscribed yet")
    return good(f"version {status['version']}, up for {status['uptime_s']:.0f} s, flows: {len(status['flows'])}")


def broker(answer: Answer) -> Verdict:
    """The gateway has a connection to the sensors' broker, and to that of the central side if there is one."""
    if "{" not in answer.text:
        return skipped("the gateway does not answer")
    status = documents(answer.text)[0]
    links = [("sensors", status["ingest"])]
    if status["central"]["enabled"]:
        links.append(("central", status["central"]))
    said = [f"{name}: {link['broker']}{'' if link['connected'] else ' is not connected'}" for name, link in links]
    return good_if(all(link["connected"] for _, link in links), ", ".join(said))


def service(name: str) -> Callable[[Answer], Verdict]:
    """Returns the judge of one service among those of `UNITS`."""

    def judge(answer: Answer) -> Verdict:
        blocks = (dict(pairs(block, "=")) for block in answer.text.split("\n\n"))
        unit = next((block for block in blocks if block.get("Id") == name), None)
        if unit is None:
            return bad(last_line(answer.text) or "systemd does not answer")
        if unit["LoadState"] != "loaded":
            return bad(f"it is not installed ({unit['LoadState']})")
        if unit["ActiveState"] == "inactive" and unit["ConditionResult"] == "no":
            return skipped("its condition does not hold: a board without an identity is in no fleet")
        ended = int(unit["NRestarts"])
        said = f"{unit['ActiveState']}, ended by itself {ended} times since the start"
        return good_if(unit["ActiveState"] == "active" and not ended, said)

    return judge


def failed_units(answer: Answer) -> Verdict:
    *units, end = answer.text.strip().splitlines()
    if end != "end of units":
        return bad(last_line(answer.text))
    return bad("failed: " + ", ".join(unit.split()[0] for unit in units)) if units else good("none has failed")


def exposure(answer: Answer) -> Verdict:
    """The services could harm little of the system, by the units that the board really has."""
    found = dict(re.findall(r"exposure level for (\S+): ([0-9.]+)", answer.text))
    if not found:
        return bad("systemd does not say how exposed the services are")
    over = [name for name, level in found.items() if float(level) > MOST_EXPOSED[name]]
    return good_if(not over, ", ".join(f"{name} {level} of {MOST_EXPOSED[name]}" for name, level in found.items()))


def _mounted(text: str) -> dict[str, tuple[str, set[str]]]:
    """Folder -> type and options of what is mounted there last."""
    rows = (line.split() for line in text.splitlines())
    return {row[1]: (row[2], set(row[3].split(","))) for row in rows if len(row) >= 4}


def read_only_root(answer: Answer) -> Verdict:
    kind, options = _mounted(answer.text)["/"]
    return good_if("ro" in options, f"{kind}, {'read-only' if 'ro' in options else 'can be written'}")


def data_partition(answer: Answer) -> Verdict:
    found = _mounted(answer.text)
    if "/var" not in found:
        return bad("nothing is mounted at /var")
    kind, options = found["/var"]
    said = f"{kind}, {','.join(sorted(options & {'ro', 'rw', 'noatime', 'relatime'}))}"
    return good_if(kind == "ext4" and {"rw", "noatime"} <= options, said)


def swap(answer: Answer) -> Verdict:
    """Swap is in memory (zram), or there is none: on the card it would wear it out."""
    head, *rows = answer.text.splitlines()
    if not head.startswith("Filename"):
        return bad(last_line(answer.text))
    names = [row.split()[0] for row in rows if row.strip()]
    on_disk = [name for name in names if not name.startswith("/dev/zram")]
    return bad(f"on a disk: {', '.join(on_disk)}") if on_disk else good(", ".join(names) or "none")


def journal(answer: Answer) -> Verdict:
    files = answer.text.split()
    if any(name.startswith("/var/log/journal/") for name in files):
        return bad("it is written to the data partition (/var/log/journal)")
    return good_if(any(name.startswith("/run/log/journal/") for name in files), f"{len(files) - 1} files in memory")


def identity(answer: Answer) -> Verdict:
    """The machine's id is kept with the data, and keys are readable by few. No content of them is looked at."""
    found = dict(pairs(answer.text))
    others = {name: found[name] for name, mode in KEYS.items() if found.get(name, mode) != mode}
    wrong = [f"{name} is {mode}, expected {KEYS[name]}" for name, mode in others.items()]
    if "same" not in answer.text.split():
        wrong.append("the machine's id is not the one on the data partition")
    keys = [name for name in KEYS if name in found]
    return bad("; ".join(wrong)) if wrong else good(f"kept with the data; keys: {', '.join(keys) or 'none'}")


def slot(answer: Answer) -> Verdict:
    """The slot that runs is the one on the card that is mounted, and is not on trial."""
    if "{" not in answer.text:
        return bad(last_line(answer.text))
    status, devices = documents(answer.text)[0], dict(pairs(answer.text))
    name, root = status["slot"], devices["root"]
    device = devices[f"slot-{name.lower()}"]
    said = f"slot {name} ({device}), version {status['version']}"
    if root != device:
        return bad(f"{said}, but the root file system is {root}")
    return good_if(not status["pending"], said + (f"; not confirmed: {status['pending']}" if status["pending"] else ""))


def attempts(answer: Answer) -> Verdict:
    """The boot loader counts the running slot as good."""
    if answer.status == NO_FILE:
        return bad("expected a board that was made from an image")
    about, *said_by = documents(answer.text)
    if not about["updates"]:
        return skipped("the boot loader of this board has one slot")
    status = said_by[0]
    slots = {slot["bootname"]: slot for entry in status["slots"] for slot in entry.values()}
    said = ", ".join(f"slot {name} {slot.get('boot_status')}" for name, slot in sorted(slots.items()))
    return good_if(slots[status["booted"]].get("boot_status") == "good", f"{said}; slot {status['booted']} runs")


def updates(answer: Answer) -> Verdict:
    """The last update did not fail."""
    if answer.status == NO_FILE:
        return bad("expected a board that was made from an image")
    about, *said_by = documents(answer.text)
    if not about["updates"]:
        return skipped("this board takes no updates yet")
    events = said_by[0]["history"]
    if not events:
        return good("none so far")
    last = events[-1]
    said = f"{last['time']} {last['event']} {last.get('version', '')} {last.get('why', '')}".strip()
    return good_if(last["event"] not in NOT_DONE, said)


def watchdog(answer: Answer) -> Verdict:
    """The hardware watchdog counts, and systemd feeds it."""
    found = dict(pairs(answer.text, "="))
    wanted = found["RuntimeWatchdogUSec"]
    if "device" not in found:
        return bad(f"systemd is to feed one every {wanted}, and there is none")
    runs = "held" in found or found["device"].split()[-1] == "active"
    return good_if(runs and wanted not in ("0", "off"), f"{found['device']}; systemd's limit is {wanted}")


def clock(answer: Answer) -> Verdict:
    found = dict(pairs(answer.text, "="))
    off_s = int(found["now"]) - answer.now
    said = f"{off_s:+.0f} s beside this machine's clock"
    if found.get("NTPSynchronized") != "yes":
        return bad(f"it is not synchronised; {said}")
    return good_if(abs(off_s) <= MOST_OFF_S, f"synchronised; {said}")


def names(answer: Answer) -> Verdict:
    """Brokers and time servers have names. systemd-resolved tells its servers by link: `Link 2 (eth0): 10.0.2.3`."""
    lines = answer.text.splitlines()
    servers = [line.split()[1] for line in lines if line.startswith("nameserver ")]
    if not servers:
        return bad("no name server: a broker or a time server can be reached by its address only")
    beyond = [line.partition(": ")[2] for line in lines if line.startswith("Link ") and line.partition(": ")[2]]
    if servers == [STUB] and not beyond:
        return bad(f"{STUB} asks no name server: neither DHCP nor `dns` named one")
    return good(f"asks {', '.join(beyond or servers)}")


def memory(answer: Answer) -> Verdict:
    found = {name: int(rest.split()[0]) / 1024 for name, rest in pairs(answer.text, ":")}
    total, free = found["MemTotal"], found["MemAvailable"]
    return good_if(free >= LEAST_FREE * total, f"{total - free:.0f} of {total:.0f} MiB are in use")


def kernel_log(answer: Answer) -> Verdict:
    """No faults of the card, the power supply or the memory since the start."""
    if answer.status == NO_FILE:
        return skipped("the kernel's log cannot be read by this user")
    *lines, end = answer.text.strip().splitlines()
    if end != "end":
        return bad(last_line(answer.text))
    return bad(f"{len(lines)} lines, the last: {last_line(lines[-1])}") if lines else good("no fault since the start")


SERVICES: Final[Mapping[str, str]] = {
    "service gateway": "edgert-gateway.service",
    "service broker": "mosquitto.service",
    "service agent": "edgert-agent.service",
}
CHECKS: Final = (
    HardwareCheck("gateway", STATUS, gateway),
    HardwareCheck("broker", STATUS, broker),
    *(HardwareCheck(name, UNITS, service(unit)) for name, unit in SERVICES.items()),
    HardwareCheck("failed units", FAILED, failed_units),
    HardwareCheck("hardening", EXPOSURE, exposure),
    HardwareCheck("clock", CLOCK, clock),
    HardwareCheck("names", NAMES, names),
    HardwareCheck("memory", MEMORY, memory),
    HardwareCheck("swap", SWAPS, swap),
    HardwareCheck("kernel log", KERNEL_LOG, kernel_log),
    HardwareCheck("watchdog", WATCHDOG, watchdog, of_image=True),
    HardwareCheck("read-only root", MOUNTS, read_only_root, of_image=True),
    HardwareCheck("data partition", MOUNTS, data_partition, of_image=True),
    HardwareCheck("journal", JOURNAL, journal, of_image=True),
    HardwareCheck("identity", IDENTITY, identity, of_image=True),
    HardwareCheck("slot", SLOT, slot, of_image=True),
    HardwareCheck("attempts", ATTEMPTS, attempts, of_image=True),
    HardwareCheck("updates", UPDATES, updates, of_image=True),
)
