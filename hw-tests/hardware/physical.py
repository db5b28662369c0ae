"""Checks that need hardware: power supply, heat, wear of the card, cores, a sensor."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from hardware.verdict import Answer, HardwareCheck, Verdict, bad, documents, good, good_if, pairs, skipped

POWER: Final = (
    "vcgencmd get_throttled 2>/dev/null;"
    ' for folder in /sys/class/hwmon/hwmon*; do [ "$(cat $folder/name 2>/dev/null)" = rpi_volt ]'
    " && echo rpi_volt=$(cat $folder/in0_lcrit_alarm); done; true"
)
THROTTLED: Final = {
    0: "undervoltage now", 1: "the frequency is capped now", 2: "throttled now", 3: "at the soft limit of heat now",
    16: "undervoltage since power on", 17: "the frequency was capped since power on", 18: "throttled since power on",
    19: "at the soft limit of heat since power on",
}  # fmt: skip
"""Bits of `vcgencmd get_throttled` (Raspberry Pi's documentation, "vcgencmd")."""
HEAT: Final = (
    "for zone in /sys/class/thermal/thermal_zone*; do"
    " heat=$(cat $zone/temp 2>/dev/null) && echo zone $heat $(cat $zone/type); done; true"
)
MOST_C: Final = 80.0
"""A Raspberry Pi begins to throttle at 80 degrees Celsius, by default."""
FREQUENCY: Final = (
    "for core in /sys/devices/system/cpu/cpu[0-9]*; do [ -r $core/cpufreq/scaling_cur_freq ] && echo ${core##*/}"
    " $(cat $core/cpufreq/scaling_cur_freq $core/cpufreq/scaling_max_freq $core/cpufreq/cpuinfo_max_freq); done;"
    " for device in /sys/class/thermal/cooling_device*; do"
    " [ -r $device/cur_state ] && echo cooling $(cat $device/cur_state) $(cat $device/type); done; true"
)
WEAR: Final = (
    "for card in /sys/block/mmcblk[0-9]; do [ -d $card/device ] && echo card ${card##*/} &&"
    " for file in type date life_time pre_eol_info ssr; do"
    " [ -r $card/device/$file ] && echo $file $(cat $card/device/$file); done; done; true"
)
EMMC_WORN: Final = 9
"""`life_time` in tenths, rounded up (JEDEC's eMMC standard, register EXT_CSD, bytes 268 and 269): 9 is 80 to 90 %."""
PRE_EOL: Final = {0: "not told", 1: "normal", 2: "80 % of the reserve is used", 3: "90 % of the reserve is used"}
"""Register EXT_CSD, byte 267."""
SPEED_CLASSES: Final = {0: "0", 1: "2", 2: "4", 3: "6", 4: "10"}
"""SD Status, bits 447 to 440 (SD Association's simplified specification of the physical layer)."""
SSR_DIGITS: Final = 128
"""512 bits, the highest first."""
WRITES: Final = (
    'echo uptime $(cat /proc/uptime); for disk in $(basename "$(readlink -f /dev/edgert/disk)") mmcblk0 mmcblk1; do'
    " [ -r /sys/block/$disk/stat ] && echo $disk $(cat /sys/block/$disk/stat); done; true"
)
SECTOR: Final = 512
LEAST_UPTIME_S: Final = 3600.0
"""A start writes more than the time after it, so a rate of less time says nothing."""
WRITTEN_MB: Final = 300.0
"""In a day, at ten messages a second."""
CORES: Final = (
    "echo online $(cat /sys/devices/system/cpu/online);"
    " main=$(systemctl show --property=MainPID --value edgert-gateway.service 2>/dev/null);"
    " for process in $main $(cat /proc/$main/task/*/children 2>/dev/null); do for thread in /proc/$process/task/*; do"
    " cores=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' $thread/status 2>/dev/null);"
    ' [ -n "$cores" ] && echo thread ${thread##*/} $cores; done; done;'
    " edgert sched dry-run --json 2>/dev/null; true"
)
USB: Final = (
    "for device in /sys/bus/usb/devices/*; do [ -r $device/idVendor ] &&"
    " echo $(cat $device/idVendor):$(cat $device/idProduct) $(cat $device/product 2>/dev/null); done; true"
)


def power(answer: Answer) -> Verdict:
    """Judges the power by the firmware of a Raspberry Pi, or by the kernel's driver of its voltage alarm."""
    found = dict(pairs(answer.text, "="))
    if "throttled" in found:
        bits = int(found["throttled"], 16)
        said = [text for bit, text in THROTTLED.items() if bits >> bit & 1]
        return good_if(not bits, f"{found['throttled']}: {', '.join(said) or 'no undervoltage, never throttled'}")
    if "rpi_volt" in found:
        return good_if(found["rpi_volt"] == "0", f"alarm of undervoltage: {found['rpi_volt']}")
    return skipped("the board does not tell of its power supply")


def heat(answer: Answer) -> Verdict:
    zones = [rest.split(maxsplit=1) for name, rest in pairs(answer.text) if name == "zone"]
    if not zones:
        return skipped("the board does not tell its temperature")
    hottest = max(int(zone[0]) / 1000 for zone in zones)
    said = ", ".join(f"{zone[-1]} {int(zone[0]) / 1000:.1f} °C" for zone in zones)
    return good_if(hottest < MOST_C, f"{said} (bad from {MOST_C:.0f} °C)")


def frequency(answer: Answer) -> Verdict:
    """No core is capped below what it can do."""
    rows = list(pairs(answer.text))
    cores = {name: [int(figure) / 1000 for figure in rest.split()] for name, rest in rows if name.startswith("cpu")}
    if not cores:
        return skipped("the board does not tell the frequency of its cores")
    capped = [name for name, (_, most, able) in cores.items() if most < able]
    cooled = [rest for name, rest in rows if name == "cooling" and "cpu" in rest and not rest.startswith("0 ")]
    said = ", ".join(f"{name} {now:.0f} of {able:.0f} MHz" for name, (now, _, able) in cores.items())
    if capped or cooled:
        return bad(f"{said}; capped: {', '.join(capped) or 'by the heat of the CPU'}")
    return good(said)


def wear(answer: Answer) -> Verdict:
    """An eMMC tells how worn it is; an SD card has no register for it."""
    cards: list[dict[str, str]] = []
    for name, rest in pairs(answer.text):
        if name == "card":
            cards.append({})
        cards[-1][name] = rest
    if not cards:
        return skipped("the board has no eMMC or SD card")
    verdicts = [_emmc(card) if "life_time" in card else _sd(card) for card in cards]
    worst = next((level for level in ("bad", "good") if any(v.level == level for v in verdicts)), "skipped")
    why = "; ".join(f"{card['card']}: {v.why}" for card, v in zip(cards, verdicts, strict=True))
    return {"bad": bad, "good": good, "skipped": skipped}[worst](why)


def _emmc(card: dict[str, str]) -> Verdict:
    used = [int(value, 16) for value in card["life_time"].split()]
    left = int(card.get("pre_eol_info", "0"), 16)
    why = f"eMMC, used: {' and '.join(map(_tenths, used))}; reserve: {PRE_EOL.get(left, 'unknown')}"
    if not any(used) and not left:
        return skipped(why)
    return good_if(max(used) < EMMC_WORN and left <= 1, why)


def _tenths(used: int) -> str:
    return "not told" if not used else "over 100 %" if used > 10 else f"{used * 10 - 10} to {used * 10} %"


def _sd(card: dict[str, str]) -> Verdict:
    ssr = card.get("ssr", "")
    speed = SPEED_CLASSES.get(int(ssr[16:18], 16), "unknown") if len(ssr) == SSR_DIGITS else "unknown"
    return skipped(f"{card.get('type', 'card')} of {card.get('date', '?')}, speed class {speed}: tells no wear")


def writes(most_mb: float) -> Callable[[Answer], Verdict]:
    """Returns the judge of what is written to the card, at most `most_mb` (MB) a day."""

    def judge(answer: Answer) -> Verdict:
        found = dict(pairs(answer.text))
        uptime_s = float(found.pop("uptime").split()[0])
        if not found:
            return skipped("no card of this board was found")
        written = {name: int(rest.split()[6]) * SECTOR / 1e6 for name, rest in found.items()}
        said = ", ".join(f"{name} {mb:.1f} MB" for name, mb in written.items()) + f" in {uptime_s / 3600:.1f} h"
        if uptime_s < LEAST_UPTIME_S:
            return skipped(f"{said}: say more after {LEAST_UPTIME_S / 3600:.0f} h")
        daily = max(written.values()) * 86400 / uptime_s
        return good_if(daily <= most_mb, f"{said}, {daily:.0f} MB a day (bad above {most_mb:.0f})")

    return judge


def cores(listed: str) -> set[int]:
    """The cores of a list as the kernel writes it: `0-2,5`. Raises `ValueError`."""
    found: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def affinity(answer: Answer) -> Verdict:
    """The threads of the gateway and its slots run on those cores that the agent has planned; others on all cores."""
    rows = list(pairs(answer.text))
    online = cores(dict(rows)["online"])
    allowed = dict(rest.split() for name, rest in rows if name == "thread")
    if not allowed:
        return skipped("no process of the gateway's service was found")
    actions = [action for told in documents(answer.text) for action in told["actions"]]
    texts = (re.match(r"thread (\d+) \(.*\): cores ([\d, ]+)$", action) for action in actions)
    planned = {found[1]: {int(core) for core in found[2].split(",")} for found in texts if found}
    wrong = [
        f"thread {thread} may run on {listed}, expected {sorted(planned.get(thread, online))}"
        for thread, listed in allowed.items()
        if cores(listed) & online != planned.get(thread, online)
    ]
    if wrong:
        return bad(f"{len(wrong)} of {len(allowed)} threads differ from the plan; {wrong[0]}")
    of_plan = len(planned.keys() & allowed.keys())
    return good(f"{len(allowed)} threads, {of_plan} of them on cores that the agent chose, of {len(online)} cores")


def sensor(answer: Answer) -> Verdict:
    """The driver of the kernel gives a number, or each of several drivers one."""
    return good_if(not answer.status, ", ".join(f"{float(line):g}" for line in answer.text.splitlines()))


def usb(device: str) -> Callable[[Answer], Verdict]:
    """Returns the judge of whether a USB device, named VENDOR:PRODUCT, is there."""

    def judge(answer: Answer) -> Verdict:
        there = {line.split()[0]: line for line in answer.text.splitlines() if line.strip()}
        return good_if(device in there, there.get(device, f"expected {device}, got {', '.join(there) or 'none'}"))

    return judge


def checks(most_mb: float, sensors: list[str], usb_devices: list[str]) -> list[HardwareCheck]:
    """Returns the checks of hardware, with those of the sensors that were named."""
    return [
        HardwareCheck("power", POWER, power),
        HardwareCheck("temperature", HEAT, heat),
        HardwareCheck("frequency", FREQUENCY, frequency),
        HardwareCheck("card wear", WEAR, wear),
        HardwareCheck("card writes", WRITES, writes(most_mb)),
        HardwareCheck("affinity", CORES, affinity),
        *(HardwareCheck(f"sensor {path}", f"cat {path}", sensor) for path in sensors),
        *(HardwareCheck(f"usb {device}", USB, usb(device)) for device in usb_devices),
    ]
