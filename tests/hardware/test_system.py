"""Checks of a board's system, each with answers of a good board and of bad ones."""

from __future__ import annotations

import pytest

from hardware import system
from hardware.verdict import HardwareCheck, Level
from tests.hardware import worlds
from tests.hardware.worlds import verdict

CHECKS = {check.name: check for check in system.CHECKS}
DISCONNECTED = worlds.status(ingest={"subscribed": True, "connected": False, "broker": "127.0.0.1:1883"})
NO_SYSTEMD = "System has not been booted with systemd as init system (PID 1). Can't operate.\n"


@pytest.mark.parametrize(
    ("name", "text", "level", "why"),
    [
        ("gateway", worlds.status(), "good", "version 0.1.0, up for 60 s, flows: 0"),
        ("gateway", worlds.status(health={"parts": [{"level": "bad", "text": "disk full"}]}), "bad", "disk full"),
        ("gateway", worlds.status(ingest={"subscribed": False}), "bad", "it has not subscribed yet"),
        ("gateway", "edgert: no gateway's control socket is there\n", "bad", "no gateway's control socket"),
        ("broker", worlds.status(), "good", "sensors: 127.0.0.1:1883"),
        ("broker", DISCONNECTED, "bad", "127.0.0.1:1883 is not connected"),
        (
            "broker",
            worlds.status(central={"enabled": True, "connected": False, "broker": "c:8883"}),
            "bad",
            "c:8883 is",
        ),
        ("broker", "sh: edgert: not found\n", "skipped", "does not answer"),
        ("service gateway", worlds.UNITS, "good", "active, ended by itself 0 times"),
        ("service broker", worlds.UNITS, "bad", "active, ended by itself 2 times"),
        ("service agent", worlds.UNITS, "skipped", "without an identity"),
        ("service agent", worlds.UNITS.replace("=no", "=yes"), "bad", "inactive"),
        ("service agent", worlds.UNITS.replace("loaded", "not-found"), "bad", "not installed"),
        ("service gateway", NO_SYSTEMD, "bad", "not been booted with systemd"),
        ("failed units", "end of units\n", "good", "none"),
        ("failed units", "e.service loaded failed failed text\nend of units\n", "bad", "failed: e.service"),
        ("failed units", NO_SYSTEMD, "bad", "not been booted with systemd"),
        ("hardening", worlds.EXPOSURE, "good", "edgert-gateway.service 1.1 of 2.0"),
        ("hardening", worlds.EXPOSURE.replace("1.1", "8.4"), "bad", "edgert-gateway.service 8.4 of 2.0"),
        ("clock", worlds.CLOCK, "good", "synchronised; +0 s"),
        ("clock", worlds.CLOCK.replace("yes", "no"), "bad", "not synchronised"),
        ("clock", f"NTPSynchronized=yes\nnow={worlds.NOW - 3600:.0f}\n", "bad", "-3600 s beside"),
        ("names", "nameserver 127.0.0.53\nGlobal:\nLink 2 (eth0): 10.0.2.3\nend\n", "good", "asks 10.0.2.3"),
        ("names", "nameserver 192.168.1.1\nend\n", "good", "asks 192.168.1.1"),
        ("names", "end\n", "bad", "no name server"),
        ("names", "nameserver 127.0.0.53\nGlobal:\nLink 2 (eth0):\nend\n", "bad", "neither DHCP nor"),
        ("memory", worlds.MEMORY, "good", "178 of 926 MiB"),
        ("memory", worlds.MEMORY.replace("766000", "50000"), "bad", "877 of 926 MiB"),
        ("swap", worlds.SWAPS, "good", "none"),
        ("swap", worlds.SWAPS + "/dev/zram0 partition 1 0 100\n", "good", "/dev/zram0"),
        ("swap", worlds.SWAPS + "/var/swap file 1 0 -2\n", "bad", "on a disk: /var/swap"),
        ("kernel log", "end\n", "good", "no fault"),
        ("kernel log", "hwmon hwmon1: Undervoltage detected!\nend\n", "bad", "1 lines, the last: hwmon hwmon1"),
        ("watchdog", worlds.WATCHDOG, "good", "BCM2835 Watchdog timer active"),
        ("watchdog", worlds.WATCHDOG.replace("held=yes\n", "").replace(" active", " inactive"), "bad", "inactive"),
        ("watchdog", worlds.WATCHDOG.replace("30s", "0"), "bad", "limit is 0"),
        ("watchdog", "RuntimeWatchdogUSec=30s\n", "bad", "there is none"),
        ("read-only root", worlds.MOUNTS, "good", "ext4, read-only"),
        ("read-only root", worlds.MOUNTS.replace("ro,", "rw,"), "bad", "can be written"),
        ("data partition", worlds.MOUNTS, "good", "ext4, noatime,rw"),
        ("data partition", worlds.MOUNTS.replace("/var", "/srv"), "bad", "nothing is mounted at /var"),
        ("data partition", worlds.MOUNTS.replace("noatime", "relatime"), "bad", "relatime,rw"),
        ("journal", worlds.JOURNAL, "good", "1 files in memory"),
        ("journal", "/var/log/journal/0123/system.journal\nend\n", "bad", "data partition"),
        ("identity", worlds.IDENTITY, "good", "keys: fleet.key, board.key"),
        ("identity", "same\n", "good", "keys: none"),
        (
            "identity",
            worlds.IDENTITY.replace("600 root", "644 root"),
            "bad",
            "fleet.key is 644 root root, expected 600",
        ),
        ("identity", worlds.IDENTITY.replace("same\n", ""), "bad", "not the one on the data partition"),
        ("slot", worlds.SLOT, "good", "slot B (/dev/vda3), version 0.1.0+1"),
        ("slot", worlds.SLOT.replace("root /dev/vda3", "root /dev/vda2"), "bad", "the root file system is /dev/vda2"),
        ("slot", worlds.SLOT.replace("null", '"0.2.0"'), "bad", "not confirmed: 0.2.0"),
        ("slot", "edgert: expected a board with two slots\n", "bad", "expected a board with two slots"),
        ("attempts", worlds.IMAGE + worlds.rauc("bad", "good"), "good", "slot A bad, slot B good; slot B runs"),
        ("attempts", worlds.IMAGE + worlds.rauc("good", "bad"), "bad", "slot B bad; slot B runs"),
        ("attempts", worlds.ONE_SLOT + "rauc: no slots\n", "skipped", "one slot"),
        ("attempts", worlds.IMAGE + "Failed to connect to RAUC\n", "bad", "Failed to connect to RAUC"),
        ("updates", worlds.IMAGE + worlds.BOARD_STATUS, "good", "confirmed 0.1.0+1"),
        ("updates", worlds.IMAGE + worlds.BOARD_STATUS.replace("confirmed", "rolled back"), "bad", "rolled back"),
        ("updates", worlds.IMAGE + '{"history": []}', "good", "none so far"),
        ("updates", worlds.ONE_SLOT + worlds.BOARD_STATUS, "skipped", "no updates yet"),
    ],
)
def test_verdict_and_reason(name: str, text: str, level: Level, why: str) -> None:
    found, reason = verdict(CHECKS[name], text)
    assert (found, why in reason) == (level, True), reason


@pytest.mark.parametrize(("name", "level"), [("attempts", "bad"), ("updates", "bad"), ("kernel log", "skipped")])
def test_a_command_that_lacks_what_it_is_about(name: str, level: Level) -> None:
    assert verdict(CHECKS[name], "", system.NO_FILE)[0] == level


def test_the_image_is_the_one_that_is_expected() -> None:
    check = HardwareCheck("image", system.ABOUT, system.image("virt"))
    assert verdict(check, worlds.IMAGE) == ("good", "board virt, version 0.1.0+20261126104249")
    assert verdict(check, worlds.ONE_SLOT)[0] == "bad"
    assert verdict(check, "", 1)[1] == "expected an image of virt, got a board without /etc/edgert/image.json"
