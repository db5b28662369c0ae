"""Settings that are good, and expose something."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from edgert.core.config import load
from edgert.core.settings.agent import AgentSettings
from edgert.core.settings.cautions import cautions
from edgert.core.settings.central import CollectorSettings
from edgert.core.settings.gateway import GatewaySettings


def said(env: Mapping[str, str], program: type = GatewaySettings, open_files: tuple[str, ...] = ()) -> list[str]:
    return [caution.partition(":")[0] for caution in cautions(load(program, None, env), open_files.__contains__)]


@pytest.mark.parametrize("program", [GatewaySettings, CollectorSettings, AgentSettings])
def test_of_the_defaults_there_is_nothing_to_say(program: type) -> None:
    assert said({}, program) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.9.1"])
def test_plain_tcp_to_this_machine_exposes_nothing(host: str) -> None:
    assert said({"EDGERT_SENSORS_HOST": host, "EDGERT_SENSORS_USERNAME": "u"}) == []


def test_data_and_password_over_plain_tcp_to_another_machine() -> None:
    env = {"EDGERT_SENSORS_HOST": "broker.example", "EDGERT_CENTRAL_HOST": "10.0.0.1", "EDGERT_CENTRAL_USERNAME": "g1"}
    sensors, central = cautions(load(GatewaySettings, None, env), lambda _: False)
    assert sensors.startswith("sensors.tls: all data goes to broker.example unencrypted")
    assert central.startswith("central.tls: the password and all data go to 10.0.0.1 unencrypted")
    assert said({**env, "EDGERT_SENSORS_TLS": "true", "EDGERT_CENTRAL_TLS": "true"}) == []
    assert said({**env, "EDGERT_CENTRAL_ENABLED": "false"}) == ["sensors.tls"]
    assert said({"EDGERT_CENTRAL_HOST": "10.0.0.1"}, CollectorSettings) == ["central.tls"]


def test_files_of_secrets_that_all_may_read() -> None:
    env = {
        "EDGERT_SENSORS_PASSWORD_FILE": "/p",
        "EDGERT_CENTRAL_KEY_FILE": "/k",
        "EDGERT_CENTRAL_MAC_KEY_FILE": "/m",
    }
    assert said(env) == []
    files = ["sensors.password_file", "central.key_file", "central.mac_key_file"]
    assert said(env, open_files=("/p", "/k", "/m")) == files
    env = {"EDGERT_COLLECTOR_MAC_KEY_FILE": "/m"}
    assert said(env, CollectorSettings) == []
    assert said(env, CollectorSettings, ("/m",)) == ["collector.mac_key_file"]


def test_a_collector_that_still_takes_unsigned_results() -> None:
    env = {"EDGERT_COLLECTOR_MAC_KEY_FILE": "/m", "EDGERT_COLLECTOR_ACCEPT_UNSIGNED": "true"}
    assert said(env, CollectorSettings) == ["collector.accept_unsigned"]
    assert said({"EDGERT_COLLECTOR_ACCEPT_UNSIGNED": "true"}, CollectorSettings) == []


@pytest.mark.parametrize(("host", "expected"), [("0.0.0.0", ["web.host"]), ("::", ["web.host"]), ("::1", [])])
def test_a_page_that_others_can_reach(host: str, expected: list[str]) -> None:
    assert said({"EDGERT_WEB_HOST": host}) == expected
    assert said({"EDGERT_WEB_HOST": host, "EDGERT_WEB_ENABLED": "false"}) == []
