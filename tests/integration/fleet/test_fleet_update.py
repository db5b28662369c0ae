"""`edgert fleet update` over a real Mosquitto with its access rules, to boards with real gateways."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgert.cli.main import main
from edgert.mqtt.access import mosquitto_acl
from tests.brokers import Broker
from tests.integration.fleet.update_boards import Board
from tests.integration.rig import FLEET, Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
NAMES = ("g1", "g2")
USERS = {name: f"secret of {name}" for name in (*NAMES, "central", "ops")}
Run = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def central(mosquitto: Callable[..., Broker], tmp_path: Path) -> Broker:
    rules = tmp_path / "acl"
    rules.write_text(mosquitto_acl(FLEET, NAMES, "central", ["ops"]))
    rules.chmod(0o644)
    for name, password in USERS.items():
        (tmp_path / f"{name}.password").write_text(password)
        (tmp_path / f"{name}.password").chmod(0o600)
    return mosquitto(users=USERS, settings=f"acl_file {rules}")


@pytest.fixture
def boards(central: Broker, mosquitto: Callable[..., Broker], tmp_path: Path) -> Iterator[dict[str, Board]]:
    rig, sensors = Rig(tmp_path, central), mosquitto()
    made = {}
    for name in NAMES:
        login = {"username": name, "password_file": str(tmp_path / f"{name}.password")}
        made[name] = Board(rig, name, sensors={"port": sensors.port}, central=login, web={"enabled": False})
        made[name].start()
    yield made
    for board in made.values():
        board.close()
        print(board.gateway.name, (board.folder / "log").read_text())
    rig.close()


@pytest.fixture
def update(central: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `edgert fleet update ... --json`: (exit status, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
        login = ("--username", "ops", "--password-file", str(tmp_path / "ops.password"))
        where = ("--broker", f"127.0.0.1:{central.port}", "--fleet", FLEET, *login)
        status = main(["fleet", "update", *arguments, *where, "--timeout-s", "250", "--json"])
        said = capsys.readouterr()
        return status, json.loads(said.out) if said.out else {}, said.err

    return run


def results(found: dict[str, Any]) -> dict[str, str]:
    return {board: one["result"] for board, one in found["boards"].items()}


def test_a_broken_bundle_stops_at_the_first_wave_and_a_good_one_comes_to_all(
    boards: dict[str, Board], update: Run
) -> None:
    """Some 10 s: gateways start six times, and boards run ten commands."""
    waves = ("--wave", "50%,100%")

    def there() -> bool:
        return update("http://h/2.raucb", *waves, "--dry-run")[1].get("waves") == [["g1"], ["g2"]]

    wait_until(there, "the boards", poll_s=0.3)
    status, found, said = update("http://h/2-broken.raucb", *waves)
    assert (status, results(found)) == (1, {"g1": "rolled back", "g2": "left"}), said
    assert "the gateway does not answer" in found["boards"]["g1"]["why"]
    assert [len(board.begun) for board in boards.values()] == [1, 0]

    wait_until(there, "g1 with its old system", poll_s=0.3)
    (boards["g2"].folder / "away").touch()  # the web server, for a moment
    status, found, said = update("http://h/3.raucb", *waves, "--version", "3")
    assert (status, results(found)) == (0, dict.fromkeys(NAMES, "confirmed")), said
    assert boards["g1"].history() == [
        ("installed", "2-broken"), ("rolled back", "2-broken"), ("installed", "3"), ("confirmed", "3"),
    ]  # fmt: skip
    assert boards["g2"].history() == [("interrupted", "3"), ("installed", "3"), ("confirmed", "3")]
    assert said.index("g1: confirmed") < said.index("wave 2 of 2: g2") < said.index("g2: asked")

    status, found, said = update("http://h/3.raucb", "--version", "3")
    assert (status, results(found)) == (0, dict.fromkeys(NAMES, "current")), said
    assert [len(board.begun) for board in boards.values()] == [2, 1]
    for version, result, why in (("3", "current", ""), ("evil", "refused", "signature")):
        status, found, said = update(f"http://h/{version}.raucb", "--board", "g2")
        assert (status, results(found)) == (int(result == "refused"), {"g2": result}), said
        assert why in found["boards"]["g2"]["why"]


def test_what_cannot_be_done_is_said_and_no_board_is_asked(central: Broker, update: Run) -> None:
    for arguments, expected in (
        (("http://h/2.raucb",), "none was seen"),
        (("http://h/2.raucb", "--board", "g9"), "board g9 is offline"),
        (("file:///x",), "url: expected http"),
        (("http://h/2.raucb", "--wave", "9%,3%"), "rising percentages"),
        (("http://h/2.raucb", "--max-failures", "-1"), "expected 0 or more"),
        (("http://h/2.raucb", "--board", "a/b"), "--board: expected a name"),
    ):
        status, _, said = update(*arguments)
        assert status == 1
        assert expected in said
