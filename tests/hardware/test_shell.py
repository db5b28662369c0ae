"""Shells of this machine, behind a client for SSH that is a stub, and on a pseudo terminal as a serial line."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardware.serial_line import Login, serial
from hardware.shell import NoBoard, Shell, answered, as_typed, local, ssh, ssh_command
from tests.waiting import DEADLINE_S


@pytest.fixture
def here() -> Iterator[Shell]:
    shell = local()
    yield shell
    shell.close()


def test_a_command_is_answered_with_its_status_and_all_that_it_printed(here: Shell) -> None:
    assert here.run("echo out; echo err >&2; exit 3").text == "out\nerr\n"
    assert here.run("exit 3").status == 3
    assert here.run("printf 'no end of line'").text == "no end of line"
    assert here.run("cat").text == ""  # it does not read the next command
    assert here.run("""echo "it's" $((1 + 1))""").text == "it's 2\n"


def test_a_command_that_takes_too_long_is_ended_and_the_next_one_is_answered(here: Shell) -> None:
    assert here.run("sleep 60", within_s=1).status == 124
    assert here.run("echo next").text == "next\n"


def test_a_shell_that_ends_is_no_board(here: Shell) -> None:
    here.type("exit 7\n")
    with pytest.raises(NoBoard, match=r"sh ended with status 7|connection is lost"):
        here.run("true")


def test_an_answer_is_complete_with_its_mark_alone() -> None:
    whole = "[   12.345678] usb 1-1: new device\r\none\r\n[two] 1\r\n\r\nend-4 3\r\n"
    assert answered(whole, "end-4") == (3, "one\n[two] 1\n")
    for length in range(len(whole) - 1):
        assert answered(whole[:length], "end-4") is None
    assert answered(whole, "end-5") is None
    assert answered(as_typed("true", "end-4", 1.0) * 2, "end-4") is None  # its echo


# -- SSH


def stub(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ssh").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_over_ssh_the_board_runs_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, f'echo "$@" >{tmp_path}/told; while [ "$1" != -- ]; do shift; done; exec $3', monkeypatch)
    shell = ssh("root@board", 2222, None, tmp_path / "known", accept_new=True)
    assert shell.run("echo $((40 + 2))").text == "42\n"
    shell.close()
    assert "-p 2222" in (tmp_path / "told").read_text()


def test_a_board_that_refuses_ssh_is_told_with_the_clients_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(tmp_path, "echo 'ssh: connect to host board port 22: Connection refused' >&2; exit 255", monkeypatch)
    with pytest.raises(NoBoard, match="port 22: Connection refused"):
        ssh("root@board", 22, None, tmp_path / "known", accept_new=True)


def test_a_host_key_is_taken_from_the_file_that_was_given_alone(tmp_path: Path) -> None:
    known = tmp_path / "known"
    given = ssh_command("root@board", 22, tmp_path / "key", known, accept_new=False, sudo=True)
    assert {"StrictHostKeyChecking=yes", f"UserKnownHostsFile={known}", "BatchMode=yes"} <= set(given)
    assert given[-5:] == ["-i", str(tmp_path / "key"), "--", "root@board", "sudo -n sh"]
    first = ssh_command("root@board", 22, None, known, accept_new=True, sudo=False)
    assert "StrictHostKeyChecking=accept-new" in first


# -- serial line

CONSOLE = (
    "printf '\\r\\nedgert login: '; read name; [ -n \"$name\" ] || { printf 'edgert login: '; read name; };"
    " printf 'Password: '; read word; [ \"$name $word\" = 'tester secret' ] || { echo 'Login incorrect'; exit; };"
    " echo 'Last login: Fri Nov 27'; PS1='# ' exec sh -i"
)


def carry(ends: dict[int, int], stop: int) -> None:
    """A line between two terminals, until something comes from `stop`."""
    while stop not in (ready := select.select([*ends, stop], [], [])[0]):
        for one in ready:
            try:
                os.write(ends[one], os.read(one, 4096))
            except OSError:  # the board's program has ended
                return


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The other end of the line is a board that asks for a name and a password, on a terminal of its own. Where it
    is slow it would take one more empty line for a name or a password."""
    monkeypatch.setattr("hardware.serial_line.QUIET_S", DEADLINE_S)
    near, line = pty.openpty()
    tty.setraw(line)
    far, terminal = pty.openpty()
    stopped, stop = os.pipe()
    on_terminal = f"exec <>{os.ttyname(terminal)} >&0 2>&1; {CONSOLE}"
    process = subprocess.Popen(["sh", "-c", on_terminal], stdin=subprocess.DEVNULL, start_new_session=True)
    carrying = threading.Thread(target=carry, args=({near: far, far: near}, stopped))
    carrying.start()
    yield Path(os.ttyname(line))
    os.write(stop, b"x")
    carrying.join()
    process.kill()
    process.wait()
    for end in (near, line, far, terminal, stopped, stop):
        os.close(end)


def test_after_a_login_on_a_serial_line_the_board_runs_the_commands(console: Path) -> None:
    shell = serial(console, 115200, Login("tester", "secret"))
    assert shell.run("echo $((40 + 2)); exit 5").text == "42\n"
    assert shell.run("exit 5").status == 5
    shell.close()


def test_a_wrong_password_is_told(console: Path) -> None:
    with pytest.raises(NoBoard, match=r"/dev/pts/\d+: the login as tester is refused"):
        serial(console, 115200, Login("tester", "wrong"))


def test_a_silent_line_is_given_up() -> None:
    board, line = pty.openpty()
    try:
        with pytest.raises(NoBoard, match="no login and no shell within 0 s"):
            serial(Path(os.ttyname(line)), 115200, Login("root", ""), within_s=0.1)
    finally:
        os.close(board)
        os.close(line)


def test_a_device_that_is_no_serial_line_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoBoard, match="No such file"):
        serial(tmp_path / "none", 115200, Login("root", ""))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NoBoard, match="expected a serial line"):
        serial(tmp_path / "file", 115200, Login("root", ""))


def test_a_login_byte_by_byte_types_each_thing_once() -> None:
    login = Login("root", "secret")
    told = "\x1b[?2004h\r\nDebian GNU/Linux 13\r\nedgert login: "
    typed = [login.hear(letter) for letter in told]
    typed += [login.hear(letter) for letter in "root\r\nPassword: "]
    assert [text for text in typed if text] == ["root\n", "secret\n"]
    typed = [login.hear(letter) for letter in "\r\nLast login: Fri Nov 27\r\nroot@edgert:~# "]
    assert not any(typed)
    assert login.done


def test_a_prompt_that_comes_twice_is_answered_once() -> None:
    """The empty line that wakes a console makes the board ask anew; the name was typed already."""
    login = Login("root", "secret")
    assert [login.hear(text) for text in ("edgert login: ", "\r\nedgert login: ", "root\r\nPassword: ")] == [
        "root\n", "", "secret\n"
    ]  # fmt: skip
    assert Login("root", "").hear("edgert login: ") == "root\n"
    assert (login.wake(), login.hear("\r\nedgert login: ")) == ("\n", "root\n")


def test_a_refusal_of_somebody_elses_attempt_does_not_count() -> None:
    login = Login("root", "secret")
    assert login.hear("\r\nLogin incorrect\r\nedgert login: ") == "root\n"
    assert login.hear("Password: ") == "secret\n"
    with pytest.raises(NoBoard, match="the login as root is refused"):
        login.hear("\r\nLogin incorrect\r\n")


def test_a_console_with_a_shell_needs_no_login() -> None:
    login = Login("root", "")
    assert login.hear("\r\nsh-5.2# ") == ""
    assert login.done
    other = Login("root", "", prompt="user:")
    assert other.hear("board user: ") == "root\n"
