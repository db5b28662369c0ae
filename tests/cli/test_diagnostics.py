"""`edgert diagnostics`: secrets of settings and key files are in no file of it, and what fails or hangs is told."""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import socket
import sqlite3
import stat
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edgert import bounded
from edgert.bounded import output
from edgert.cli.diagnostics import parts, secrets
from edgert.cli.diagnostics.commands import within
from edgert.cli.main import main
from edgert.core.config import SettingEntry, entries
from edgert.core.errors import EdgertError
from edgert.core.settings.board import BoardSettings
from edgert.core.settings.programs import PROGRAMS
from edgert.core.toml import to_toml

SETTINGS: dict[str, type[Any]] = {**PROGRAMS, "board": BoardSettings}


class Machine:
    """Settings, key files and programs in a folder; each secret setting has a value, each key file a content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.etc, self.board = folder / "etc", folder / "var"
        self.planted: list[str] = []
        for name in ("etc", "var/enrolment", "bin", "data"):
            (folder / name).mkdir(parents=True)
        for program, cls in SETTINGS.items():
            document: dict[str, dict[str, Any]] = {}
            for entry in entries(cls):
                if entry.about.secret or entry.about.secret_file:
                    document.setdefault(entry.section, {})[entry.name] = self._secret(program, entry)
            if program == "gateway":
                document.setdefault("gateway", {})["data_dir"] = str(folder / "data")
            self.file(program).write_text(to_toml(document))
        self._plant(self.etc / "fleet.key", "of the default's place")
        self._plant(folder / "data/fleet.key", "of the data folder")
        self.program("journalctl", f"cat {folder}/journal")
        self.log("\n".join(map(self._line, self.planted)))

    def file(self, program: str) -> Path:
        return self.board / "enrolment/request.toml" if program == "board" else self.etc / f"{program}.toml"

    def _secret(self, program: str, entry: SettingEntry) -> str:
        """The setting's value."""
        if entry.about.secret:
            return self._plant(None, f"{program}.{entry.path}")
        path = self.folder / f"{program}.{entry.path}"
        self._plant(path, path.name)
        return str(path)

    def _plant(self, path: Path | None, name: str) -> str:
        word = f'wörd "{hashlib.sha256(name.encode()).hexdigest()[:12]}"'
        key = base64.b64encode(hashlib.sha256(name.encode()).digest()).decode()
        text = f"{word}\n{key}\n"
        self.planted += [word, key]
        if path:
            path.write_text(text)
            path.chmod(0o600)
        return text

    @staticmethod
    def _line(secret: str) -> str:
        raw = secret.encode()
        return f"said: {secret} {json.dumps(secret)} {secret!r} {base64.b64encode(raw).decode()} {raw.hex()}"

    def log(self, text: str) -> None:
        (self.folder / "journal").write_text(f"{text}\n")

    def program(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, *more: str) -> dict[str, str]:
        path = self.folder / "made.tar.gz"
        config = ("--config", str(self.etc / "gateway.toml"), "--agent-config", str(self.etc / "agent.toml"))
        assert main(["diagnostics", "-o", str(path), *config, *more]) == 0
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        return unpacked(path.read_bytes())


def unpacked(content: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = archive.getmembers()
        assert all(member.isreg() and member.mode == 0o600 for member in members)
        found = {}
        for member in members:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.removeprefix("edgert-diagnostics/")] = file.read().decode()
    assert not [name for name in found if "/" in name]
    return found


def missing(found: dict[str, str]) -> dict[str, str]:
    told: dict[str, str] = json.loads(found["manifest.json"])["missing"]
    return told


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(secrets, "FOLDERS", (made.etc, made.board))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    for name in ("systemctl", "timedatectl"):
        made.program(name, f"echo {name} was asked")
    return made


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """The path of a socket that takes connections and never answers."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "silent.sock"))
        listening.listen()
        yield str(tmp_path / "silent.sock")


def hex_and_base64(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield secret.encode().hex()
    yield base64.b64encode(secret.encode()).decode().rstrip("=")


def test_secrets_of_all_settings_and_key_files_are_in_no_file(machine: Machine) -> None:
    found = machine.run()
    assert len(machine.planted) > 2 * 15
    for name, text in found.items():
        for secret in machine.planted:
            assert not [form for form in hex_and_base64(secret) if form in text], name
    assert found["log-edgert.txt"].count("said: [redacted]") == len(machine.planted)
    gateway = json.loads(found["settings-gateway.json"])
    assert gateway["sensors"]["password_file"] == str(machine.folder / "gateway.sensors.password_file")


def test_a_gateway_that_is_down_or_has_wrong_settings_is_told_and_the_rest_is_there(machine: Machine) -> None:
    wrong = f'[sensors]\npassword_file = "{machine.folder}/gateway.sensors.password_file"\nport = no\n'
    (machine.etc / "gateway.toml").write_text(wrong)
    found = machine.run()
    assert "expected TOML" in missing(found)["settings-gateway.json"]
    assert "gateway.toml" in missing(found)["status.json"]
    assert json.loads(found["machine.json"])["cores"] == os.cpu_count()
    assert found["clock.txt"] == "timedatectl was asked\n"
    word, key = (line for line in (machine.folder / "gateway.sensors.password_file").read_text().splitlines())
    assert word not in found["log-edgert.txt"]
    assert key not in found["log-edgert.txt"]
    assert "status.json: " in found["README.txt"]


def test_sockets_that_hang_are_left(machine: Machine, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ANSWER_S", 0.05)
    found = machine.run("--socket", silent, "--agent-socket", silent)
    for name in ("status.json", "figures.json", "flow-parts.json", "fleet.json", "sched.json"):
        assert "no answer to " in missing(found)[name]
    assert "log-edgert.txt" in found


def test_a_key_file_that_cannot_be_read_is_named(machine: Machine) -> None:
    path = machine.folder / "gateway.central.mac_key_file"
    path.unlink()
    os.mkfifo(path)
    found = machine.run()
    assert "expected a file, got something else" in missing(found)[f"secrets of {path}"]


def test_a_password_where_the_path_of_its_file_belongs_is_a_secret(machine: Machine) -> None:
    (machine.etc / "gateway.toml").write_text('[sensors]\npassword_file = "Hunter2zz"\n')
    machine.log("Hunter2zz was refused")
    for name, text in machine.run().items():
        assert "Hunter2zz" not in text, name


def test_private_files_beyond_the_most_are_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "MOST_FILES", 2)
    assert "were not read" in missing(machine.run())["secrets of further files"]


@pytest.mark.parametrize(
    "data_dir", ["x" * 5000, "/a\\u0000b", "/proc/self/mem"], ids=["too long", "zero byte", "no folder"]
)
def test_a_data_folder_that_cannot_be_one_is_told(machine: Machine, data_dir: str) -> None:
    (machine.etc / "gateway.toml").write_text(f'[gateway]\ndata_dir = "{data_dir}"\n')
    found = machine.run()
    assert [name for name in missing(found) if "fleet.key" in name]
    assert "database.json" in missing(found)


def test_a_data_folder_that_may_not_be_entered_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    denied, real = str(machine.folder / "data/fleet.key"), Path.stat

    def stat(path: Path, **more: Any) -> os.stat_result:
        if str(path) == denied:
            raise PermissionError(13, "Permission denied", denied)
        return real(path, **more)

    monkeypatch.setattr(Path, "stat", stat)
    assert "Permission denied" in missing(machine.run())[f"secrets of {denied}"]


def test_settings_in_a_folder_that_may_not_be_entered_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "AGENT_CONFIG"):
        monkeypatch.setattr(parts, name, Path("x" * 5000))  # fails as such a folder does, for root, too
    assert parts.Sources(argparse.Namespace(config=None, agent_config=None)).configs == []


def test_settings_that_are_a_pipe_are_told_at_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gateway.toml", "agent.toml"):
        (machine.etc / name).unlink()
        os.mkfifo(machine.etc / name)
    found = machine.run()
    for name in ("settings-gateway", "status", "figures", "flow-parts", "metrics", "database", "settings-agent",
                 "fleet", "sched"):  # fmt: skip
        why = missing(found).get(f"{name}.json") or missing(found)[f"{name}.txt"]
        assert "expected a file, got something else" in why


def test_environment_of_the_service_names_key_files_too(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.folder / "handed").write_text("handed-over-by-systemd\n")
    machine.program("systemctl", f"echo 'EDGERT_COLLECTOR_MAC_KEY_FILE={machine.folder}/handed OTHER=\"a b\"'")
    machine.log("it is handed-over-by-systemd")
    assert machine.run()["log-kernel.txt"] == "it is [redacted]\n"


def test_journal_is_in_order_and_bounded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.log("newest\nolder\n      its second line\n      its third\noldest")
    assert machine.run()["log-kernel.txt"] == "oldest\nolder\n      its second line\n      its third\nnewest\n"
    machine.log("newest\nolder\noldest")
    monkeypatch.setattr(bounded, "MOST_BYTES", 15)
    monkeypatch.setattr(bounded, "READ_BYTES", 3)
    assert machine.run()["log-kernel.txt"] == "older\nnewest\n", "a line that is cut could hold half a secret"


def test_database_is_read_without_a_trace_and_its_documents_have_no_secrets(machine: Machine) -> None:
    data = machine.folder / "data"
    with closing(sqlite3.connect(data / "gateway.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE flow (name, version, origin, removed, epoch, plan, document)")
        db.execute("CREATE TABLE stream (flow, batches, rows, bytes)")
        db.execute(
            """INSERT INTO flow VALUES ('f', 3, 'mqtt', 0, 7, 0, '{"operators": {"s": {"api_key": "k-4711"}}}')"""
        )
        db.execute("INSERT INTO stream VALUES ('f', 2, 20, 200), ('f', 1, 5, 50)")
    (data / "dangling").symlink_to("nowhere")
    before = sorted(data.iterdir())
    found = json.loads(machine.run()["database.json"])
    assert found["flows"][0]["document"] == {"operators": {"s": {"api_key": "[redacted]"}}}
    assert found["waiting"] == [{"flow": "f", "batches": 3, "rows": 25, "bytes": 250}]
    assert found["rows"] == {"flow": 1, "stream": 2}
    assert found["files"]["gateway.db"] > 0
    assert sorted(data.iterdir()) == before


def test_a_damaged_database_leaves_the_sizes_of_files(machine: Machine) -> None:
    (machine.folder / "data/gateway.db").write_bytes(b"no database" * 100)
    found = json.loads(machine.run()["database.json"])
    assert found["files"]["gateway.db"] == 1100
    assert "not a database" in found["error"]


def test_standard_output_has_the_archive(machine: Machine, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["diagnostics", "-o", "-", "--config", str(machine.etc / "gateway.toml")]) == 0
    said = capfdbinary.readouterr()
    assert "README.txt" in unpacked(said.out)
    assert said.err.startswith(b"standard output: ")


def test_a_file_that_cannot_be_written_is_an_error(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnostics", "-o", str(machine.folder / "none/made.tar.gz")]) == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_only_a_regular_file_is_replaced(machine: Machine, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = machine.folder / "there"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("etc/fleet.key" if kind == "link" else "nowhere")
    before = path.lstat()
    assert main(["diagnostics", "-o", str(path)]) == 1
    assert "expected a regular file or none yet" in capsys.readouterr().err
    assert path.lstat() == before


def test_commands_are_bounded_in_time_and_bytes() -> None:
    with pytest.raises(EdgertError, match=r"tail: expected an end within 0\.05 s"):
        output("tail", "-f", "/dev/null", within_s=0.05)
    said = output("yes", "a line")
    assert bounded.MOST_BYTES - 20 < len(said) <= bounded.MOST_BYTES + bounded.READ_BYTES
    assert said.endswith("a line\n")
    with pytest.raises(EdgertError, match="no-such-program: No such file"):
        output("no-such-program")
    with pytest.raises(EdgertError, match="sh: the end of it"):
        output("sh", "-c", "echo first; echo the end of it; exit 3")


def test_a_part_that_hangs_or_raises_is_an_error_of_its_own() -> None:
    with pytest.raises(EdgertError, match="expected an end within"):
        within(0.05, threading.Event().wait)
    with pytest.raises(EdgertError, match="ZeroDivisionError"):
        within(60.0, lambda: 1 // 0)
