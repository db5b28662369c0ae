"""Answers of boards, written after the documentation of the programs and of the kernel that give them."""

from __future__ import annotations

import json
from typing import Any, Final

from hardware.verdict import Answer, HardwareCheck, Level

NOW: Final = 1_790_000_000.0


def answer(text: str, status: int = 0) -> Answer:
    return Answer(status, text, NOW)


def verdict(check: HardwareCheck, text: str, status: int = 0) -> tuple[Level, str]:
    found = check.verdict(answer(text, status))
    return found.level, found.why


IMAGE: Final = '{"board": "virt", "version": "0.1.0+20261126104249", "updates": true}\n'
ONE_SLOT: Final = '{"board": "pi4", "version": "0.1.0+20261126104249", "updates": false}\n'


def status(**changes: Any) -> str:
    """Output of `edgert status --json`, as far as it is looked at."""
    plain = {
        "gateway": "g1", "fleet": "default", "version": "0.1.0", "uptime_s": 60.0, "flows": [],
        "health": {"parts": [{"level": "good", "text": "sensors: connected"}]},
        "ingest": {"subscribed": True, "connected": True, "broker": "127.0.0.1:1883"},
        "central": {"enabled": False, "connected": False, "broker": "127.0.0.1:1883"},
    }  # fmt: skip
    return json.dumps(plain | changes, indent=1)


UNITS: Final = """NRestarts=0
Id=edgert-gateway.service
LoadState=loaded
ActiveState=active
ConditionResult=yes

NRestarts=2
Id=mosquitto.service
LoadState=loaded
ActiveState=active
ConditionResult=yes

NRestarts=0
Id=edgert-agent.service
LoadState=loaded
ActiveState=inactive
ConditionResult=no
"""
EXPOSURE: Final = (
    "→ Overall exposure level for edgert-gateway.service: 1.1 OK 🙂\n"
    "→ Overall exposure level for edgert-agent.service: 2.1 OK 🙂\n"
)
MOUNTS: Final = """rootfs / rootfs rw 0 0
/dev/mmcblk0p2 / ext4 ro,relatime 0 0
/dev/mmcblk0p4 /var ext4 rw,noatime 0 0
tmpfs /tmp tmpfs rw,nosuid,nodev,size=32768k 0 0
"""
SWAPS: Final = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
JOURNAL: Final = "/run/log/journal/0123/system.journal\nend\n"
IDENTITY: Final = "same\nboard.key 640 root edgert-board\nboard.pem 644 root root\nfleet.key 600 root root\n"
BOARD_STATUS: Final = json.dumps(
    {
        "slot": "B", "version": "0.1.0+1", "pending": None,
        "history": [{"time": "2026-11-26T12:33:10+00:00", "event": "confirmed", "version": "0.1.0+1", "slot": "B"}],
    }
)  # fmt: skip
SLOT: Final = BOARD_STATUS + "\n\nroot /dev/vda3\nslot-a /dev/vda2\nslot-b /dev/vda3\n"


def rauc(a: str, b: str) -> str:
    """Output of `rauc status --output-format=json`, with the states of the slots for the boot loader."""
    slots = [
        {f"root.{n}": {"class": "root", "device": f"/dev/edgert/slot-{name.lower()}", "type": "raw", "bootname": name,
                       "state": "booted" if name == "B" else "inactive", "boot_status": state}}
        for n, (name, state) in enumerate({"A": a, "B": b}.items())
    ]  # fmt: skip
    return json.dumps({"compatible": "edgert-virt", "booted": "B", "boot_primary": "root.1", "slots": slots})


WATCHDOG: Final = "RuntimeWatchdogUSec=30s\nheld=yes\ndevice=watchdog0 Broadcom BCM2835 Watchdog timer active\n"
CLOCK: Final = f"NTPSynchronized=yes\nnow={NOW:.0f}\n"
MEMORY: Final = "MemTotal:         948288 kB\nMemFree:          500000 kB\nMemAvailable:     766000 kB\n"
CPU0: Final = "cpu0 600000 1500000 1500000\ncpu1 1500000 1500000 1500000\ncooling 0 cpufreq-cpu0\n"
EMMC: Final = "card mmcblk0\ntype MMC\ndate 08/2022\nlife_time 0x01 0x02\npre_eol_info 0x01\n"
SSR: Final = "00000000" * 2 + "04000000" + "00000000" * 13
SD: Final = f"card mmcblk0\ntype SD\ndate 05/2023\nssr {SSR}\n"
STAT: Final = "4500 100 90000 5000 1200 800 {sectors} 7000 0 3000 12000 0 0 0 0 0 0"
"""/sys/block/*/stat (the kernel's Documentation/block/stat.rst): the seventh figure is of sectors written."""


def writes(uptime_s: float, sectors: int) -> str:
    return f"uptime {uptime_s} 3.5\nmmcblk0 {STAT.format(sectors=sectors)}\n"


def cores(plan: str = "", **threads: str) -> str:
    """Threads t1=..., t2=... with the cores on which they may run; a board of four cores."""
    rows = "".join(f"thread {name[1:]} {listed}\n" for name, listed in threads.items())
    return f"online 0-3\n{rows}" + (json.dumps({"policy": "qs", "actions": [plan], "notes": []}) if plan else "")
