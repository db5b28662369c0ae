"""Checks of hardware, each with answers of boards; and that no check takes nonsense for good."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware import physical, system
from hardware.shell import as_typed
from hardware.verdict import Level
from tests.hardware import worlds
from tests.hardware.worlds import verdict

SENSOR, USB = "sensor /sys/bus/w1/devices/28-*/temperature", "usb 0403:6001"
ALL = [*system.CHECKS, *physical.checks(300.0, [SENSOR.split()[1]], [USB.split()[1]])]
CHECKS = {check.name: check for check in ALL}
ON_FAST = "thread 12 (g1 slot 0): cores 2, 3"


@pytest.mark.parametrize(
    ("name", "text", "level", "why"),
    [
        ("power", "throttled=0x0\n", "good", "no undervoltage, never throttled"),
        (
            "power",
            "throttled=0x50005\n",
            "bad",
            "undervoltage now, throttled now, undervoltage since power on, throttled",
        ),
        ("power", "throttled=0x80000\n", "bad", "at the soft limit of heat since power on"),
        ("power", "rpi_volt=0\n", "good", "alarm of undervoltage: 0"),
        ("power", "rpi_volt=1\n", "bad", "alarm of undervoltage: 1"),
        ("power", "", "skipped", "does not tell"),
        ("temperature", "zone 51540 cpu-thermal\n", "good", "cpu-thermal 51.5 °C"),
        ("temperature", "zone 40000 a\nzone 81250 b\n", "bad", "b 81.2 °C"),
        ("temperature", "", "skipped", "does not tell"),
        ("frequency", worlds.CPU0, "good", "cpu0 600 of 1500 MHz, cpu1 1500 of 1500 MHz"),
        ("frequency", worlds.CPU0.replace("1500000 1500000\ncpu1", "600000 1500000\ncpu1"), "bad", "capped: cpu0"),
        ("frequency", worlds.CPU0.replace("cooling 0", "cooling 2"), "bad", "capped: by the heat of the CPU"),
        ("frequency", "", "skipped", "does not tell"),
        ("card wear", worlds.EMMC, "good", "mmcblk0: eMMC, used: 0 to 10 % and 10 to 20 %; reserve: normal"),
        ("card wear", worlds.EMMC.replace("0x02", "0x09"), "bad", "80 to 90 %"),
        ("card wear", worlds.EMMC.replace("0x02", "0x0b"), "bad", "over 100 %"),
        ("card wear", worlds.EMMC.replace("info 0x01", "info 0x02"), "bad", "80 % of the reserve is used"),
        ("card wear", worlds.EMMC.replace("0x01", "0x00").replace("0x02", "0x00"), "skipped", "not told and not told"),
        ("card wear", worlds.SD, "skipped", "SD of 05/2023, speed class 10: tells no wear"),
        ("card wear", worlds.SD + worlds.EMMC, "good", "tells no wear; mmcblk0: eMMC"),
        ("card wear", "", "skipped", "no eMMC or SD card"),
        ("card writes", worlds.writes(86_400, 500_000), "good", "256.0 MB in 24.0 h, 256 MB a day"),
        ("card writes", worlds.writes(43_200, 500_000), "bad", "512 MB a day"),
        ("card writes", worlds.writes(600, 500_000), "skipped", "256.0 MB in 0.2 h"),
        ("card writes", "uptime 86400.0 3.5\n", "skipped", "no card"),
        ("affinity", worlds.cores(t11="0-3", t12="0-3"), "good", "2 threads, 0 of them on cores that the agent chose"),
        ("affinity", worlds.cores(ON_FAST, t11="0-3", t12="2-3"), "good", "2 threads, 1 of them"),
        ("affinity", worlds.cores(ON_FAST, t11="0-3", t12="0-3"), "bad", "thread 12 may run on 0-3, expected [2, 3]"),
        ("affinity", worlds.cores(t11="0,2"), "bad", "thread 11 may run on 0,2, expected [0, 1, 2, 3]"),
        ("affinity", worlds.cores("thread 11 (g1 slot 0): nice 3", t11="0-3"), "good", "1 threads, 0 of them"),
        ("affinity", worlds.cores(), "skipped", "no process"),
        (SENSOR, "23312\n", "good", "23312"),
        (SENSOR, "cat: /sys/bus/w1/devices/28-*/temperature: No such file or directory\n", "bad", "No such file"),
        (USB, "1d6b:0002 xHCI Host Controller\n0403:6001 FT232R USB UART\n", "good", "0403:6001 FT232R USB UART"),
        (USB, "1d6b:0002 xHCI Host Controller\n", "bad", "expected 0403:6001, got 1d6b:0002"),
    ],
)
def test_verdict_and_reason(name: str, text: str, level: Level, why: str) -> None:
    found, reason = verdict(CHECKS[name], text)
    assert (found, why in reason) == (level, True), reason


@pytest.mark.parametrize("name", CHECKS)
@given(st.text(st.sampled_from(' {}[]":=0x1a\n-'), max_size=60))
def test_an_answer_that_says_nothing_is_never_good(name: str, text: str) -> None:
    for status in (0, 127):
        level, why = verdict(CHECKS[name], "", status)
        assert level != "good"
        assert why
        assert verdict(CHECKS[name], f"sh: nothing\n{text}", status)[0] != "good"


def test_cores_are_read_as_the_kernel_lists_them() -> None:
    assert physical.cores("0-2,5") == {0, 1, 2, 5}
    with pytest.raises(ValueError, match="invalid literal"):
        physical.cores("")


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.name)
def test_commands_are_understood_by_a_shell_and_fit_into_a_line_of_a_terminal(check: object) -> None:
    assert isinstance(check, type(ALL[0]))
    done = subprocess.run(["sh", "-n", "-c", check.command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert shlex.split(check.command)
    assert len(as_typed(check.command, "end-10", 60.0)) < 2048  # the kernel takes 4095
