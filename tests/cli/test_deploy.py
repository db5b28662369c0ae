"""`edgert deploy`: local errors first, the gateway's answer, and a clear word when nobody answers."""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from edgert.cli import _broker
from edgert.cli.deploy import _by_agent
from edgert.cli.main import main
from edgert.core.settings.connection import Connection
from edgert.mqtt.clients.control_plane import ControlConnection
from edgert.operators.registry import REGISTRY
from tests.brokers import Broker
from tests.integration.rig import FLEET, ROOT, Rig
from tests.waiting import DEADLINE_S, wait_until

MakeBroker = Callable[..., Broker]
Run = Callable[..., tuple[int, str, str]]

GOOD = """
name = "warm"
[operators.readings]
type = "mqtt_source"
topic = "city/{source}/sense"
codec = "senml"
[operators.warm]
type = "filter"
input = "readings"
where = "temperature > 20"
[operators.alarm]
type = "publish"
input = "warm"
topic = "alerts/{source}"
"""

WINDOW = (
    GOOD
    + """
[operators.hot]
type = "tumbling_window"
input = "warm"
size_s = 60
aggregates = { n = "count()" }
[operators.central]
type = "ship"
input = "hot"
"""
)

BACK = """
name = "back"
[operators.in]
type = "mqtt_source"
topic = "alerts/{source}"
[operators.out]
type = "publish"
input = "in"
topic = "city/{source}/sense"
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    file = tmp_path / "warm.toml"
    file.write_text(GOOD)
    return file


@pytest.fixture
def deploy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `edgert deploy ...` and returns (status, standard output, standard error)."""
    monkeypatch.setattr("edgert.cli.deploy.QUIET_S", 2.0)  # a busy broker says later which gateways there are

    def run(*arguments: object) -> tuple[int, str, str]:
        status = main(["deploy", *map(str, arguments)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def rig(tmp_path: Path, mosquitto: MakeBroker) -> Iterator[Rig]:
    made = Rig(tmp_path, mosquitto())
    yield made
    made.close()


@contextmanager
def births(port: int, **states: str) -> Iterator[None]:
    """Keeps what gateways would say at the broker: online or offline."""
    client = ControlConnection(Connection(port=port), "births")
    client.start()
    wait_until(lambda: client.connected, "the connection")
    for name, state in {**states, "@collector": "online"}.items():
        client.publish(f"edgert/v1/{FLEET}/{name}/status", json.dumps({"state": state}).encode(), retain=True)
    client.stop(("births/done", b"x"))
    yield


def test_a_bad_document_is_told_here_and_nothing_is_sent(flow: Path, deploy: Run) -> None:
    flow.write_text(GOOD.replace('codec = "senml"', 'codec = "xml"').replace("temperature > 20", "temperature >"))
    status, out, err = deploy(flow, "--broker", f"127.0.0.1:{free_port()}")
    assert (status, out) == (1, "")
    assert "2 errors" in err
    assert "operators.readings.codec" in err
    assert "operators.warm.where" in err
    assert "broker" not in err


def test_operators_of_a_package_that_cannot_be_loaded_are_told(
    flow: Path, deploy: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgert.operators.registry.with_installed", lambda: (REGISTRY, {"third": "no module x"}))
    flow.write_text(GOOD.replace('"senml"', '"xml"'))
    _, _, err = deploy(flow)
    assert "operators of third are left out: no module x" in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "expected either a flow file or --remove NAME"),
        (["x.toml", "--remove", "x"], "expected either a flow file or --remove NAME"),
        (["--remove", "X/Y"], "--remove: there is no flow 'X/Y'"),
        (["--remove", "x", "--gateway", "+"], "--gateway: expected a name"),
        (["--remove", "x", "--fleet", ""], "--fleet: expected a name"),
        (["--remove", "x", "--broker", "h:0"], "--broker: expected HOST[:PORT]"),
        (["--remove", "x", "--broker", "h 1883"], "--broker: expected HOST[:PORT]"),
        (["--remove", "x", "--broker", "user@h"], "--broker: expected HOST[:PORT]"),
        (["--remove", "TYPO"], "there is no flow 'TYPO': names have small letters, digits, _ and -"),
        (["--remove", "x", "--tls", "--ca-file", "/none"], "edgert: --ca-file /none: No such file or directory\n"),
        (["--remove", "x", "--ca-file", "/none"], "--ca-file: expected --tls beside it"),
        (["--remove", "x", "--tls", "--key-file", "k"], "--key-file: expected --cert-file beside it"),
        (["--remove", "x", "--password-file", "p"], "--password-file: expected --username beside it"),
        (["none.toml"], "none.toml: expected a readable file"),
        (["none.toml", "--config", "/none/gateway.toml"], "/none/gateway.toml"),
        (["--remove", "x", "--username", "u", "--password-file", "/none"], "--password-file /none"),
    ],
)
def test_what_cannot_be_meant_is_said(arguments: list[str], expected: str, deploy: Run) -> None:
    status, _, err = deploy(*arguments)
    assert status == 1
    assert expected in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config"], Connection("b.example", 1999, username="u")),
        (["--config", "--username", "v"], Connection("b.example", 1999, username="v")),
        (["--config", "--broker", "c"], Connection("c", 1883, username="u")),
        (["--config", "--broker", "c:5", "--tls"], Connection("c", 5, tls=True, username="u")),
        (["--tls"], Connection(port=8883, tls=True)),
        (["--broker", "c"], Connection("c")),
        ([], Connection()),
    ],
)
def test_options_win_over_the_settings_of_the_gateway(arguments: list[str], expected: Connection) -> None:
    parser = argparse.ArgumentParser()
    _broker.add(parser)
    parser.add_argument("--config", action="store_true")
    args = parser.parse_args(arguments)
    settings = Connection("b.example", 1999, username="u") if args.config else None
    assert _broker.connection(args, settings) == expected


def test_without_a_broker_it_says_so_at_once_and_only_that(flow: Path) -> None:
    """As a process, since logging under pytest goes elsewhere."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "edgert",
        "deploy",
        str(flow),
        "--broker",
        f"127.0.0.1:{port}",
        "--timeout-s",
        "600",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"edgert: no connection to 127.0.0.1:{port}: Connection refused; nothing was sent\n"


def test_a_broker_that_says_nothing_is_given_up(flow: Path, deploy: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        status, _, err = deploy(flow, "--broker", f"127.0.0.1:{port}", "--gateway", "g1", "--timeout-s", 0.5)
    assert status == 1
    assert f"broker 127.0.0.1:{port} does not answer within 0.5 s" in err


@pytest.mark.integration
def test_tls_to_a_plain_port_names_the_options(flow: Path, deploy: Run, mosquitto: MakeBroker) -> None:
    status, _, err = deploy(flow, "--broker", f"127.0.0.1:{mosquitto().port}", "--tls", "--timeout-s", 60)
    assert status == 1
    assert "or leave out --tls; nothing was sent" in err


@pytest.mark.integration
def test_a_false_password_is_said(flow: Path, deploy: Run, tmp_path: Path, mosquitto: MakeBroker) -> None:
    broker = mosquitto(users={"u": "right"})
    secret = tmp_path / "secret"
    secret.write_text("wrong\n")
    where = ("--broker", f"127.0.0.1:{broker.port}", "--username", "u", "--password-file", secret)
    status, _, err = deploy(flow, *where, "--timeout-s", 60)
    assert status == 1
    assert err.startswith(
        f"edgert: the broker at 127.0.0.1:{broker.port} refused: not authorized (0x87); are --username and"
    )
    assert err.lower().count("authorized") == 1
    assert "wrong" not in err


@pytest.mark.integration
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, "got none; seen: none. Name one with --gateway, or the right --fleet or --broker"),
        ({"g1": "offline"}, "got none; seen: g1 (offline)"),
        ({"g1": "online", "g2": "online"}, "got 2 that are online; seen: g1 (online), g2 (online)"),
    ],
)
def test_without_exactly_one_gateway_online_those_seen_are_named(
    states: dict[str, str], expected: str, flow: Path, deploy: Run, mosquitto: MakeBroker
) -> None:
    broker = mosquitto()
    with births(broker.port, **states):
        status, _, err = deploy(flow, "--broker", f"127.0.0.1:{broker.port}", "--fleet", FLEET)
    assert status == 1
    assert expected in err


@pytest.mark.integration
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, "no gateway of this name was ever seen there"),
        ({"g1": "offline"}, "its status is offline"),
        ({"g1": "online"}, "its status is online: look at its log"),
    ],
)
def test_when_no_gateway_answers_its_last_status_is_told(
    states: dict[str, str], expected: str, flow: Path, deploy: Run, mosquitto: MakeBroker
) -> None:
    broker = mosquitto()
    where = ("--broker", f"127.0.0.1:{broker.port}", "--fleet", FLEET, "--gateway", "g1", "--timeout-s", 5)
    with births(broker.port, **states):
        status, _, err = deploy(flow, *where)
    assert status == 1
    assert f"no answer from gateway g1 of fleet {FLEET}" in err
    assert expected in err
    assert "The document waits at the broker" in err


@pytest.mark.integration
def test_a_flow_is_deployed_replaced_and_removed(rig: Rig, flow: Path, deploy: Run) -> None:
    """The gateway is found without being named, and the same document twice is answered twice."""
    gateway = rig.gateway()
    gateway.start_ready()
    gateway.wait(lambda s: s["central"]["connected"], "the control connection")
    where = ("--broker", f"127.0.0.1:{rig.broker.port}", "--fleet", FLEET, "--timeout-s", 60)
    assert deploy(flow, *where) == (0, "flow warm on gateway g1: accepted, version 1\n", "")
    status, out, _ = deploy(flow, *where, "--json")
    facts = {"flow": "warm", "fleet": FLEET, "gateway": "g1", "version": 1}
    state = {"kept": [], "lost": [], "replaces": False}
    assert (status, json.loads(out)) == (0, facts | {"cautions": [], "state": state})
    changed = flow.with_name("changed.toml")
    changed.write_text(WINDOW)
    said = "flow warm on gateway g1: nothing is changed\nno operator of the flow keeps state\n"
    assert deploy(changed, *where, "--dry-run") == (0, said, "")
    flow.write_text(GOOD.replace("> 20", "> 25"))
    assert deploy(flow, *where, "--gateway", "g1")[:2] == (0, "flow warm on gateway g1: accepted, version 2\n")
    settings = rig.folder / "of-the-gateway.toml"
    settings.write_text(f'[gateway]\nid = "g1"\nfleet = "{FLEET}"\n[central]\nport = {rig.broker.port}\n')
    assert deploy(flow, "--config", settings, "--timeout-s", 60)[:2] == (
        0,
        "flow warm on gateway g1: accepted, version 2\n",
    )
    assert deploy("--remove", "warm", *where)[:2] == (0, "flow warm on gateway g1: version 2 is removed\n")
    status, _, error = deploy("--remove", "warm", *where)
    assert status == 1
    assert "--remove: expected the name of a flow of gateway g1, got 'warm': there was none" in error
    assert "a refused document of that name is taken back" in error
    gateway.wait(lambda s: not s["flows"], "no flow")


@pytest.mark.integration
def test_a_dry_run_says_which_state_would_be_lost_and_changes_nothing(rig: Rig, flow: Path, deploy: Run) -> None:
    gateway = rig.gateway()
    gateway.start_ready()
    gateway.wait(lambda s: s["central"]["connected"], "the control connection")
    where = ("--broker", f"127.0.0.1:{rig.broker.port}", "--fleet", FLEET, "--timeout-s", 60)
    flow.write_text(WINDOW)
    none = "no version of the flow runs there: all of its operators begin without state"
    head = "flow warm on gateway g1: nothing is changed\n"
    assert deploy(flow, *where, "--dry-run") == (0, f"{head}{none}\n", "")
    assert not gateway.now()["flows"]
    assert deploy(flow, *where)[0] == 0
    assert deploy(flow, *where, "--dry-run") == (0, f"{head}state would be kept: hot\n", "")
    flow.write_text(WINDOW.replace("size_s = 60", "size_s = 30"))
    assert deploy(flow, *where, "--dry-run") == (0, f"{head}state would be lost: hot (it is changed)\n", "")
    said = "flow warm on gateway g1: accepted, version 2\nstate lost: hot (it is changed)\n"
    assert deploy(flow, *where) == (0, said, "")


@pytest.mark.integration
def test_a_loop_that_there_may_be_is_said_to_who_deploys(rig: Rig, flow: Path, deploy: Run) -> None:
    """By way of another flow, too, and again for the same document."""
    gateway = rig.gateway()
    gateway.start_ready()
    gateway.wait(lambda s: s["central"]["connected"], "the control connection")
    where = ("--broker", f"127.0.0.1:{rig.broker.port}", "--fleet", FLEET, "--timeout-s", 60)
    assert deploy(flow, *where)[2] == ""
    back = flow.with_name("back.toml")
    back.write_text(BACK)
    for _ in range(2):
        status, out, err = deploy(back, *where)
        assert (status, out) == (0, "flow back on gateway g1: accepted, version 1\n")
        way = "back.out -> city/{source}/sense -> warm.alarm -> alerts/{source} -> back.in"
        assert err == f"edgert: note: the flow may read what it publishes, and each message would make another: {way}\n"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("running", "says"),
    [(4, "; version 4 runs on; {}, or deploy that version again"), (None, "; {}, or take it back (--remove warm)")],
)
def test_a_refusal_names_every_error_and_what_becomes_of_the_document(
    running: int | None, says: str, flow: Path, deploy: Run, mosquitto: MakeBroker
) -> None:
    """As when the gateway is older than the command, and lacks an operator."""
    from edgert.mqtt.clients.deployment import digest

    broker = mosquitto()
    base = f"edgert/v1/{FLEET}/g1"
    errors = [{"path": "operators.a.type", "expected": "x", "got": "y"}, {"path": "b", "expected": "x", "got": "z"}]
    subscribed = threading.Event()

    def refuse(topic: str, payload: bytes, request: object) -> None:
        answer = {"accepted": False, "errors": errors, "running_version": running, "digest": digest(payload)}
        fake.publish(f"{topic}/state", json.dumps(answer).encode(), retain=True)

    fake = ControlConnection(
        Connection(port=broker.port), "fake", subscriptions=[(f"{base}/flows/+", 1)], on_message=refuse,
        on_subscribed=subscribed.set,
    )  # fmt: skip
    fake.start()
    try:
        assert subscribed.wait(60.0)
        status, out, err = deploy(
            flow, "--broker", f"127.0.0.1:{broker.port}", "--fleet", FLEET, "--gateway", "g1", "--timeout-s", 60
        )
    finally:
        fake.stop()
    assert (status, out) == (1, "")
    held = "the broker still holds the refused document, and the gateway tries it again when it restarts"
    stays = f"{held}: deploy a mended one"
    assert err == (
        f"edgert: gateway g1 refused flow warm{says.format(stays)}: 2 errors\n"
        "  operators.a.type: expected x, got y\n  b: expected x, got z\n"
    )


def test_an_agent_of_another_fleet_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker was asked without a word, and the error was about a broker that nobody had named."""
    monkeypatch.setattr("edgert.cli.deploy.ask_agent", lambda *_, **__: {"fleet": "t"})
    asked = argparse.Namespace(socket=None, fleet="other")
    assert _by_agent(asked, "warm", None) is None
    assert "the agent of this board belongs to fleet t, not other" in capsys.readouterr().err
