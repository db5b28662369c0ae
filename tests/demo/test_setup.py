from __future__ import annotations

import platform
import shutil
import socket
import tomllib
from pathlib import Path

import pytest

from edgert.core.config import parse
from edgert.core.errors import DocumentError, EdgertError
from edgert.core.settings.central import CollectorSettings
from edgert.core.settings.gateway import GatewaySettings
from edgert.demo import setup as demo_setup
from edgert.demo.setup import Options, child_environment, commands, free_port, further, load_flow, lock, prepare
from edgert.install_hint import command


def test_the_files_written_are_good_settings_of_both_programs(tmp_path: Path) -> None:
    folder = tmp_path / 'da"ta \\ ü'
    ready = prepare(Options(data=folder, web_port=0))
    gateway = parse(GatewaySettings, (folder / "gateway.toml").read_text(), {})
    central = parse(CollectorSettings, (folder / "central.toml").read_text(), {})
    assert gateway.gateway.data_dir == str(folder / "gateway")
    assert (gateway.gateway.fleet, central.collector.fleet) == ("demo", "demo")
    assert gateway.sensors.port == gateway.central.port == central.central.port == ready.broker_port
    assert gateway.sensors.protocol == "3.1.1"
    assert central.collector.table_root == str(folder / "tables")
    assert gateway.web.port == ready.web_port


def test_the_gateways_name_stays_when_the_host_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "first host.local")
    assert prepare(Options(data=tmp_path)).gateway == "first-host"
    monkeypatch.setattr(platform, "node", lambda: "second")
    assert prepare(Options(data=tmp_path)).gateway == "first-host"


def test_a_broken_file_of_an_earlier_start_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text("[gateway\n")
    ready = prepare(Options(data=tmp_path))
    assert tomllib.loads((tmp_path / "gateway.toml").read_text())["gateway"]["id"] == ready.gateway


def test_a_taken_port_gives_way_to_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        assert free_port(taken) not in (taken, 0)


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(EdgertError, match="another demo runs in this folder"):
        lock(tmp_path)
    lock(tmp_path).close()


@pytest.mark.parametrize("trace", [None, Path("trace.csv")])
def test_both_flows_of_the_demo_are_good(trace: Path | None) -> None:
    assert load_flow(Options(trace=trace))[0] == ("city" if trace else "machine")


def test_a_bad_flow_is_refused_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "flow.toml"
    file.write_text('name = "Bad Name"\n')
    with pytest.raises(DocumentError, match=r"flow\.toml"):
        prepare(Options(data=tmp_path / "data", flow=file))
    assert not (tmp_path / "data").exists()


def test_a_missing_trace_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(EdgertError, match="expected a trace file, found none"):
        prepare(Options(data=tmp_path / "data", trace=tmp_path / "none.csv"))


def test_what_is_not_installed_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_setup, "find_spec", lambda name: None if name in ("amqtt", "rich") else object())
    text = demo_setup.missing_parts(embedded_broker=True)
    assert text == (
        f"the demo needs amqtt (the embedded broker), rich (the summary); install it with: {command('demo')}"
    )
    assert "amqtt" not in demo_setup.missing_parts(embedded_broker=False)


def test_with_a_broker_of_its_own_nobody_starts_another(tmp_path: Path) -> None:
    ready = prepare(Options(data=tmp_path, broker="127.0.0.1:1999"))
    assert "broker" not in commands(ready)
    assert "127.0.0.1:1999" in commands(ready)["publisher"]


def test_settings_of_the_users_environment_do_not_reach_the_children() -> None:
    env = child_environment({"EDGERT_WEB_PORT": "1", "EDGERT_POOL_WORKERS": "2", "HOME": "/h"})
    assert "EDGERT_WEB_PORT" not in env
    assert (env["EDGERT_POOL_WORKERS"], env["HOME"]) == ("2", "/h")


def test_the_brokers_port_is_the_usual_one_if_it_is_free_and_any_other_if_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        assert prepare(Options(data=tmp_path, broker_port=taken)).broker_port not in (taken, 0)
    assert prepare(Options(data=tmp_path, broker_port=taken)).broker_port == taken


def test_what_to_look_at_next_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(data=tmp_path / "my data", broker="127.0.0.1:1999", web_port=0)
    ready = prepare(options)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    show, deploy, page = (line.split("  #")[0].strip() for line in further(ready, ".venv/bin/edgert"))
    assert show == f".venv/bin/edgert central show machine --root '{tmp_path / 'my data' / 'tables'}'"
    assert deploy == f".venv/bin/edgert deploy FLOW.toml --config '{tmp_path / 'my data' / 'gateway.toml'}'"
    assert page == ready.url
    monkeypatch.setattr(shutil, "which", lambda name: f"/somewhere/{name}")
    assert further(ready, "/somewhere/edgert")[0].startswith("  edgert central show")
    assert " -m edgert central show" in further(ready, "main.py")[0]
