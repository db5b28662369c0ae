"""The command: a report of this machine, a board that is lost amid it, none at all, wrong arguments."""

from __future__ import annotations

import json

import pytest

from hardware import __main__ as runner
from hardware import physical, system
from hardware.report import DESCRIPTION, HardwareReport, described
from hardware.shell import NoBoard, Shell
from hardware.verdict import Answer, Verdict
from tests.hardware import worlds


def test_the_report_of_this_machine_has_all_checks_and_what_must_be_true(capsys: pytest.CaptureFixture[str]) -> None:
    status = runner.main(["none", "--local", "--json"])
    report = json.loads(capsys.readouterr().out)
    found = {check["name"]: check for check in report["checks"]}
    expected = [check.name for check in (*system.CHECKS, *physical.checks(300.0, [], []))]
    assert list(found) == ["image", *expected, "message"]
    assert status == (1 if any(check["verdict"] == "bad" for check in found.values()) else 0)
    assert report["result"] == ("bad" if status else "good")
    assert all(check["why"] for check in found.values())
    assert found["memory"]["verdict"] in ("good", "bad")
    assert "MiB are in use" in found["memory"]["why"]
    for name in ("image", "read-only root", "slot"):
        assert (found[name]["verdict"], found[name]["why"]) == ("skipped", "the board was not made from an image")
    assert found["message"]["why"] == "no broker was named (--broker HOST:PORT)"
    assert (report["reached"], report["board"]["image"]) == ("local", "none")
    assert report["board"]["kernel"].startswith("Linux ")


def test_the_report_for_people_has_a_line_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    runner.main(["none", "--local", "--usb", "ffff:ffff"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("board ")
    assert any(line.split()[:3] == ["bad", "usb", "ffff:ffff"] for line in lines)
    assert len(lines) == 4 + 1 + len(system.CHECKS) + len(physical.checks(1.0, [], ["ffff:ffff"])) + 1


class Mute(Shell):
    """A board that answers some commands, and is then away."""

    def __init__(self, answers: int) -> None:
        self._left = answers

    def run(self, command: str, within_s: float = 0.0) -> Answer:
        self._left -= 1
        if self._left < 0:
            raise NoBoard("the connection is lost")
        return Answer(0, worlds.status() if command == system.STATUS else worlds.IMAGE, worlds.NOW)


def test_a_board_that_is_lost_amid_the_checks_is_bad() -> None:
    report = runner.examine(Mute(3), runner.parsed(["virt", "--host", "board"]), "ssh board", None)
    verdicts = list(report.verdicts.items())
    assert [(name, v.level) for name, v in verdicts[:3]] == [("image", "good"), ("gateway", "good"), ("broker", "good")]
    assert verdicts[3] == (
        "service gateway", Verdict("bad", "the board does not answer any more: the connection is lost"),
    )  # fmt: skip
    assert {v.why for _, v in verdicts[4:-1]} == {"no connection since service gateway"}
    assert report.status == 1


def test_without_a_board_nothing_is_checked_and_the_reason_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["pi4", "--serial", "/dev/no-such-line"]) == 3
    assert capsys.readouterr().out == "skipped: /dev/no-such-line: No such file or directory\n"
    assert runner.main(["pi4", "--serial", "/dev/no-such-line", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["result"] == "skipped"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["pi4"], "one of the arguments --host --serial --local --qemu is required"),
        (["pi5", "--local"], "invalid choice"),
        (["pi4", "--host", "-oProxyCommand=x"], "expected one argument"),
        (["pi4", "--host=-oProxyCommand=x"], "expected a host name or an address"),
        (["pi4", "--local", "--sensor", "/x; reboot"], "expected a file"),
        (["pi4", "--local", "--usb", "0403"], "expected VENDOR:PRODUCT"),
        (["pi4", "--local", "--broker", "board"], "expected HOST:PORT"),
        (["none", "--qemu"], "needs the name of an image"),
        (["pi4", "--serial", "/dev/x", "--password-file", "/no/file"], "expected a file"),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        runner.main(arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_board_is_described_without_its_serial_number() -> None:
    told = "\nmodel Raspberry Pi 4 Model B Rev 1.4\nkernel Linux 6.12.57\narchitecture aarch64\nid 0123456789ab\n"
    assert described(worlds.answer(worlds.ONE_SLOT + told)) == {
        "model": "Raspberry Pi 4 Model B Rev 1.4", "id": "0123456789ab", "kernel": "Linux 6.12.57",
        "architecture": "aarch64", "image": "pi4", "version": "0.1.0+20261126104249",
    }  # fmt: skip
    assert described(worlds.answer("sh: 1: nothing\n"))["model"] == "unknown"
    assert "serial" not in DESCRIPTION


def test_one_bad_check_makes_the_exit_status() -> None:
    report = HardwareReport(described(worlds.answer("")), "local", "now", {"a": Verdict("good", "x")})
    assert (report.status, report.plain()["result"]) == (0, "good")
    report.verdicts["b"] = Verdict("skipped", "y")
    assert report.status == 0
    report.verdicts["c"] = Verdict("bad", "z")
    assert (report.status, list(report.lines())[-1]) == (1, "1 good, 1 bad, 1 skipped")
