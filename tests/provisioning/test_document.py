"""The provisioning file: what a board is told, and how faults are answered."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.config import parse
from edgert.core.errors import DocumentError
from edgert.core.settings.gateway import GatewaySettings
from edgert.core.toml import to_toml
from provisioning.document import files_untrusted
from tests.provisioning.keys import KEY

SAMPLE = Path(__file__).parents[2] / "images/provisioning.sample.toml"
NOTHING = '[broker]\nlisten = ""\n'
"""A setting that is the default."""


def settings(files: dict[str, str]) -> GatewaySettings:
    return parse(GatewaySettings, files["gateway.toml"], {})


def test_a_file_of_defaults_opens_nothing_to_the_network() -> None:
    files = files_untrusted(NOTHING)
    assert files["mosquitto/listener.conf"] == "listener 1883 127.0.0.1\nallow_anonymous true\n"
    assert settings(files) == GatewaySettings()
    assert files["network/lan.network"] == ""


def test_the_sample_is_taken_as_it_is_and_with_every_comment_removed() -> None:
    text = SAMPLE.read_text()
    assert settings(files_untrusted(text)).gateway.id == "gateway-1"
    header, rest = text.split("\n\n", 1)
    assert header.startswith("#")
    whole = files_untrusted(re.sub(r"(?m)^# ", "", rest).replace("ssh-ed25519 AAAA...", KEY))
    assert whole["ssh/authorized_keys"] == f"{KEY} me@laptop\n"
    assert settings(whole).central.host == "broker.example"
    assert settings(whole).central.port == 1883
    assert "Address=192.168.1.20/24\nGateway=192.168.1.1\nDNS=192.168.1.1\n" in whole["network/lan.network"]


def test_with_a_listener_on_the_network_the_gateway_uses_one_of_its_own() -> None:
    files = files_untrusted('[broker]\nlisten = "0.0.0.0"\n')
    assert (settings(files).sensors.port, settings(files).central.port) == (1884, 1884)
    assert "listener 1884 127.0.0.1" in files["mosquitto/listener.conf"]


def test_a_wireless_network_has_the_fixed_address_and_its_password_is_not_kept() -> None:
    files = files_untrusted(
        '[wifi]\nname = "IEEE"\npassword = "password"\ncountry = "DE"\n[network]\naddress = "10.0.0.2/24"\n'
    )
    # the test vector of IEEE 802.11, J.4.2
    key = "f42c6fc52df0ebef9ebb4b90b38a5f902e83fe1b135a70e23aed762e9710a12e"
    assert files["network/wifi.conf"] == (
        "country=DE\nnetwork={\n    ssid=49454545\n    scan_ssid=1\n"
        f"    key_mgmt=WPA-PSK\n    proto=RSN\n    psk={key}\n}}\n"
    )
    assert files["network/lan.network"].startswith("[Match]\nName=wl*\n")
    opened = files_untrusted('[wifi]\nname = "b\\"}\\n"\nopen = true\n')
    assert opened["network/wifi.conf"] == "network={\n    ssid=62227d0a\n    scan_ssid=1\n    key_mgmt=NONE\n}\n"
    assert "network/wifi.conf" not in files_untrusted(NOTHING)


def test_who_has_a_key_gets_a_shell_and_a_later_file_without_keys_ends_that() -> None:
    told = files_untrusted(f'[ssh]\nkeys = ["{KEY} me@laptop", "{KEY}"]\n')
    assert told["ssh/authorized_keys"] == f"{KEY} me@laptop\n{KEY}\n"
    assert files_untrusted(NOTHING)["ssh/authorized_keys"] == ""


@pytest.mark.parametrize(
    "key",
    [
        "", "ssh-ed25519", KEY.removeprefix("ssh-ed25519 "), KEY.replace("ed25519 ", "rsa "), f"{KEY}AAA",
        KEY[:-8], f"{KEY} {KEY}", f"{KEY} {'x' * 201}", KEY.replace("ssh-ed", "foo-ed"),
        f"{KEY}\n{KEY}", f'command="sh" {KEY}', f"{KEY}\tme", "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_what_is_no_public_key_is_refused_with_its_number(key: str) -> None:
    with pytest.raises(DocumentError, match=r"ssh.keys: expected lines of .pub files.*key 2 is none"):
        files_untrusted(to_toml({"ssh": {"keys": [KEY, key]}}))


def test_a_port_or_a_broker_that_is_named_stays() -> None:
    files = files_untrusted('[broker]\nlisten = "0.0.0.0"\n[central]\nhost = "b.example"\n[sensors]\nport = 1999\n')
    assert (settings(files).sensors.port, settings(files).central.port) == (1999, 1883)


def test_sensors_of_the_network_cannot_control_the_gateway_unless_told() -> None:
    closed = files_untrusted('[broker]\nlisten = "0.0.0.0"\n')
    opened = files_untrusted('[broker]\nlisten = "0.0.0.0"\ncontrol = true\n')
    network = closed["mosquitto/listener.conf"].split("listener 1883")[1]
    assert "acl_file /var/edgert/mosquitto/sensors.acl" in network
    assert "deny edgert/#" in closed["mosquitto/sensors.acl"]
    assert "acl_file" not in opened["mosquitto/listener.conf"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id = 1", r"id: expected a table \[id\]"),
        ("[gateway", "file: expected TOML"),
        ('[gateway]\nid = "a b"', "gateway.id: expected"),
        ("[sensor]\n", "sensor: expected a known section"),
        ('[broker]\nlisten = "0.0.0.0\\nlistener 1"', "broker.listen: expected an IP address"),
        ('[broker]\nlisten = "0.0.0.0"\nport = 1884', "broker.port: expected another port"),
        ('[network]\naddress = "192.168.1.20"', "network.address: expected an address with prefix length"),
        ('[network]\ngateway = "router"', "network.gateway: expected an IP address"),
        ('[network]\nhostname = "a\\nb"', "network.hostname: expected letters"),
        (
            '[identity]\nmac_key = "short"',
            "identity.mac_key: expected the line of a file made by",
        ),
        ('[wifi]\nname = "' + "ü" * 17 + '"', "wifi.name: expected at most 32 bytes"),
        ('[wifi]\nname = "a"', "wifi.password: expected either a password or wifi.open = true, got neither"),
        ('[wifi]\nname = "a"\nopen = true\npassword = "12345678"', "wifi.password: expected either .* got both"),
        ('[wifi]\ncountry = "DE"', "wifi.name: expected the name of the network, got none"),
        ('[wifi]\npassword = "short"', "wifi.password: expected 8 to 63 printable ASCII characters, got another value"),
        ('[wifi]\ncountry = "de"', "wifi.country: expected a country's two letters"),
        ("[gateway]\nid = 2020-01-01", "gateway.id: expected"),
        ("[gateway]\nid = { a = 1 }", "expected"),
        ("[pool]\nworkers = inf", "expected"),
    ],
)
def test_a_fault_is_named_with_its_place(text: str, says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        files_untrusted(text)


def test_a_board_with_a_mac_key_uses_it_unless_its_file_says_no() -> None:
    identity = f'[identity]\nmac_key = """\n{"A" * 43}=\n"""\n'
    files = files_untrusted(identity)
    assert settings(files).central.mac_key_file == "/var/edgert/identity/mac.key"
    assert files["identity/mac.key"] == f"{'A' * 43}=\n"
    assert settings(files_untrusted(f'[central]\nmac_key_file = ""\n{identity}')).central.mac_key_file == ""


def test_faults_of_board_and_gateway_are_told_at_once() -> None:
    with pytest.raises(DocumentError) as caught:
        files_untrusted('[gateway]\nid = "a b"\n[network]\ngateway = "router"\n')
    assert [problem.path for problem in caught.value.problems] == ["gateway.id", "network.gateway"]


@given(st.text())
def test_any_text_is_taken_or_refused_with_the_one_error(text: str) -> None:
    try:
        files_untrusted(text)
    except DocumentError:
        return


@given(st.dictionaries(st.sampled_from(["ca_file", "username"]), st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_come_through_unchanged(values: dict[str, str]) -> None:
    lines = "".join(f"{name} = {quoted(value)}\n" for name, value in values.items())
    files = files_untrusted(f"{NOTHING}\n[central]\n{lines}")
    assert tomllib.loads(files["gateway.toml"]).get("central", {}) == values


def quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08x}" for c in text) + '"'


def test_a_broker_that_saves_more_often() -> None:
    files = files_untrusted('[broker]\nlisten = "0.0.0.0"\nsave_s = 1\n')
    assert files["mosquitto/listener.conf"].startswith("autosave_interval 1\nper_listener_settings true\n")


@pytest.mark.parametrize("line", [f"[{'a.' * 500}a]", f"a = {{{'a.' * 500}a = 1}}"])
def test_a_name_of_very_many_parts_is_refused_before_it_is_read(line: str) -> None:
    """A file of 256 kB with one took half a minute."""
    with pytest.raises(DocumentError, match="line 2: expected at most 200 dots, got 500"):
        files_untrusted(f"[gateway]\n{line}\n")


def test_lists_in_lists_without_end_are_a_fault_of_the_file() -> None:
    with pytest.raises(DocumentError, match="expected TOML"):
        files_untrusted(f"a = {'[' * 100_000}")
