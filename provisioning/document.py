"""The provisioning file `edgert.toml`: the gateway's settings, the board's network, and who may use its broker."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from edgert.core.config import parse, sections
from edgert.core.errors import DocumentError, Problem, show
from edgert.core.settings.agent import AgentSettings
from edgert.core.settings.board import (
    LOCAL_PORT,
    SAVE_S,
    BoardSettings,
    Identity,
    LanBroker,
    Network,
    Wifi,
    wifi_faults,
)
from edgert.core.settings.gateway import GatewaySettings
from edgert.core.toml import to_toml

S = TypeVar("S")
STORED: Final = "/var/edgert"
"""The folder of the board below which the files stand."""
ACL: Final = f"{STORED}/mosquitto/sensors.acl"
LOCAL: Final = ("127.0.0.1", "localhost", "::1")
TLS_PORT: Final = 8883
SENSORS_ACL: Final = "topic readwrite #\ntopic deny edgert/#\n"
"""Rules by which a client without a name publishes as a sensor, and can neither deploy flows nor read results."""
IDENTITY: Final = {
    "certificate": "identity/board.pem",
    "key": "identity/board.key",
    "ca": "identity/ca.pem",
    "crl": "identity/crl.pem",
    "fleet_key": "identity/fleet.key",
    "mac_key": "identity/mac.key",
}
"""Setting of `[identity]` -> file below `STORED`."""
RENEWED: Final = "identity/renewed"
"""Folder of a certificate that replaced the provisioning file's, and its key."""
WIFI_FILE: Final = "network/wifi.conf"
SERVICE_FILE: Final = "enrolment/url"
TOKEN_FILE: Final = "enrolment/request.toml"
"""The provisioning file of a board that waits for its identity,"""
TOKEN_KEY: Final = "enrolment/next.key"
"""the key that it is to get a certificate for,"""
COMPLETE_FILE: Final = "enrolment/complete.toml"
"""and the file with that identity, until it is stored."""
MOST_DOTS: Final = 200
"""Dots in a line: the time to read a name goes with the square of the number of its parts (1 MiB took minutes)."""
SECRETS: Final = frozenset((*(IDENTITY[name] for name in ("key", "fleet_key", "mac_key")), TOKEN_FILE, WIFI_FILE))
"""Files that not everybody may read."""


def files_untrusted(text: str, where: str = "edgert.toml", own_name: str = "") -> dict[str, str]:
    """Path below the board's /var/edgert -> content, for each file that a provisioning file stands for. A file without
    a setting is an error: the defaults would replace name, network and broker of a board.

    `own_name` is the gateway's id where the file gives none; without both, the gateway makes it from its machine id.
    Raises `DocumentError` with every fault in it.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MOST_DOTS and not line.lstrip().startswith("#"):
            raise DocumentError(where, [Problem(f"line {number}", f"at most {MOST_DOTS} dots", f"{line.count('.')}")])
    try:
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DocumentError(where, [Problem("file", "TOML", str(error))]) from error
    if loose := [name for name, table in document.items() if not isinstance(table, dict)]:
        raise DocumentError(where, [Problem(name, f"a table [{name}]", show(document[name])) for name in loose])
    ours, agents = _names(BoardSettings), _names(AgentSettings) - _names(GatewaySettings)
    gateway = {name: table for name, table in document.items() if name not in ours | agents}
    agent = {name: table for name, table in document.items() if name in agents}
    board = _read(BoardSettings, {name: document[name] for name in ours & set(document)}, where)
    if own_name and not gateway.get("gateway", {}).get("id"):
        gateway = {**gateway, "gateway": {**gateway.get("gateway", {}), "id": own_name}}
    if isinstance(board, BoardSettings):
        if board.broker.listen:
            for name in ("sensors", "central"):
                _at_home(gateway.setdefault(name, {}))
        _identify(gateway, agent, board.identity)
        if board.enrolment.token:  # without its identity the connection would be one without TLS
            gateway["central"] = {"enabled": False}
    if "gateway" in gateway:  # data_dir is the gateway's alone
        agent["gateway"] = {name: value for name, value in gateway["gateway"].items() if name in ("id", "fleet")}
    if isinstance(board, BoardSettings) and (between := [*_half(board), *wifi_faults(document.get("wifi", {}))]):
        board = DocumentError(where, between)
    settings, agent_settings = _read(GatewaySettings, gateway, where), _read(AgentSettings, agent, where)
    parts = (settings, agent_settings, board)
    if faults := [part.problems for part in parts if isinstance(part, DocumentError)]:
        raise DocumentError(where, dict.fromkeys(problem for problems in faults for problem in problems))
    if not any(document.values()):
        raise DocumentError(where, [Problem("file", 'a setting at least, such as id = "g1" below [gateway]', "none")])
    assert isinstance(board, BoardSettings)
    assert isinstance(settings, GatewaySettings)
    hostname = board.network.hostname or settings.gateway.id or "edgert"
    return {
        "gateway.toml": to_toml(gateway),
        "agent.toml": to_toml(agent),
        "mosquitto/listener.conf": _listeners(board.broker),
        "mosquitto/sensors.acl": SENSORS_ACL,
        "network/lan.network": _network(board.network, "wl*" if board.wifi.name else "en* eth* end*"),
        **({WIFI_FILE: _wifi(board.wifi)} if board.wifi.name else {}),
        "network/hostname": f"{hostname.split('.')[0]}\n",
        "ssh/authorized_keys": "".join(f"{key}\n" for key in board.ssh.keys),
        **{path: own for name, path in IDENTITY.items() if (own := getattr(board.identity, name))},
        **({SERVICE_FILE: f"{board.enrolment.url}\n"} if board.enrolment.url else {}),
        **({TOKEN_FILE: text} if board.enrolment.token else {}),
    }


def _half(board: BoardSettings) -> list[Problem]:
    """A token is of no use alone, and of none beside an identity."""
    enrolment = board.enrolment
    if not enrolment.token:
        return []
    if not (enrolment.url and enrolment.ca_sha256):
        return [Problem("enrolment.token", "enrolment.url and enrolment.ca_sha256 beside a token", "not both")]
    if board.identity.certificate:
        return [Problem("enrolment.token", "either a token or an identity", "both")]
    return []


def _names(cls: type[Any]) -> set[str]:
    return {name for name, _, _ in sections(cls)}


def _identify(gateway: dict[str, Any], agent: dict[str, Any], identity: Identity) -> None:
    """Sets the files of an identity where a setting names no others: those of links, of the agent, of the connection to
    a central broker elsewhere, and the key of MACs."""
    path = {name: f"{STORED}/{file}" for name, file in IDENTITY.items() if getattr(identity, name)}
    if {"certificate", "key", "ca"} <= set(path):
        links = {"certificate": path["certificate"], "key": path["key"], "ca": path["ca"]}
        links |= {"crl": path["crl"]} if "crl" in path else {}
        gateway["links"] = links | gateway.get("links", {})
        central = gateway.get("central", {})
        if central.get("host", "127.0.0.1") not in LOCAL and central.get("tls", True):
            files = {"ca_file": path["ca"], "cert_file": path["certificate"], "key_file": path["key"]}
            gateway["central"] = {"tls": True, "port": TLS_PORT} | files | central
    if "mac_key" in path:
        gateway["central"] = {"mac_key_file": path["mac_key"]} | gateway.get("central", {})
    if "fleet_key" in path:
        files = {"key_file": path["fleet_key"]} | ({"crl_file": path["crl"]} if "crl" in path else {})
        if {"certificate", "key"} <= set(path):
            files |= {"certificate": path["certificate"], "private_key": path["key"]}
        agent["agent"] = files | agent.get("agent", {})


def _read(cls: type[S], document: Mapping[str, Mapping[str, Any]], where: str) -> S | DocumentError:
    try:
        return parse(cls, to_toml(document), {}, where)
    except DocumentError as error:
        return error


def _at_home(connection: dict[str, Any]) -> None:
    """Sets the port of the board's own broker where a connection names no other broker."""
    if connection.get("host", "127.0.0.1") in LOCAL:
        connection.setdefault("port", LOCAL_PORT)


def _listeners(broker: LanBroker) -> str:
    saves = f"autosave_interval {broker.save_s}\n" if broker.save_s != SAVE_S else ""  # limits.conf has the default
    return saves + _listening(broker)


def _listening(broker: LanBroker) -> str:
    if not broker.listen:
        return "listener 1883 127.0.0.1\nallow_anonymous true\n"
    own = f"per_listener_settings true\nlistener {LOCAL_PORT} 127.0.0.1\nallow_anonymous true\n"
    rules = "" if broker.control else f"acl_file {ACL}\n"
    return f"{own}listener {broker.port} {broker.listen}\nallow_anonymous true\n{rules}"


def _wifi(wifi: Wifi) -> str:
    """The settings of wpa_supplicant. Name and key are hexadecimal, so that no character of them means anything to it.
    The key is made of name and password as WPA2 has it (IEEE 802.11, J.4.1): the password is not on the board."""
    name = wifi.name.encode()
    key = hashlib.pbkdf2_hmac("sha1", wifi.password.encode(), name, 4096, 32).hex()
    country = f"country={wifi.country}\n" if wifi.country else ""
    how = f"key_mgmt=WPA-PSK\n    proto=RSN\n    psk={key}" if wifi.password else "key_mgmt=NONE"
    return f"{country}network={{\n    ssid={name.hex()}\n    scan_ssid=1\n    {how}\n}}\n"


def _network(network: Network, devices: str) -> str:
    if not network.address:
        return ""
    lines = [f"Address={network.address}"]
    lines += [f"Gateway={network.gateway}"] if network.gateway else []
    lines += [f"DNS={network.dns}"] if network.dns else []
    return f"[Match]\nName={devices}\n\n[Network]\n" + "".join(f"{line}\n" for line in lines)
