"""The provisioning file `edgert.toml`: the gateway's settings, the board's network, and who may use its broker."""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time
from typing import Any, Final, TypeVar

from edgert.core.config import parse, section, sections, setting
from edgert.core.errors import DocumentError, Problem, show
from edgert.core.settings import GatewaySettings

S = TypeVar("S")
LOCAL_PORT: Final = 1884
"""Where the board's own programs reach its broker, when the network uses it too."""
ACL: Final = "/var/edgert/mosquitto/sensors.acl"
LOCAL: Final = frozenset(("127.0.0.1", "localhost", "::1"))
HOSTNAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
SENSORS_ACL: Final = "topic readwrite #\ntopic deny edgert/#\n"
"""Who publishes as a sensor can neither deploy flows nor read results."""


def _address(text: str) -> str | None:
    try:
        ipaddress.ip_address(text or "0.0.0.0")
    except ValueError:
        return "an IP address"
    return None


def _interface(text: str) -> str | None:
    try:
        ipaddress.ip_interface(text or "0.0.0.0/0")
    except ValueError:
        return "an address with prefix length, such as 192.168.1.20/24"
    return None if not text or "/" in text else "an address with prefix length, such as 192.168.1.20/24"


def _hostname(text: str) -> str | None:
    return None if not text or HOSTNAME.fullmatch(text) else "letters, digits and '-', at most 63"


def _other_port(port: int) -> str | None:
    return f"another port: {LOCAL_PORT} is that of the board's own programs" if port == LOCAL_PORT else None


@dataclass(frozen=True, slots=True)
class LanBroker:
    """Who may use the board's own broker over the network."""

    listen: str = setting(
        "", doc="address to listen on, such as 0.0.0.0; empty: the network cannot reach the broker", check=_address
    )
    port: int = setting(1883, doc="TCP port", minimum=1, maximum=65_535, check=_other_port)
    control: bool = setting(False, doc="flows and settings may be written, and results read, over this listener")


@dataclass(frozen=True, slots=True)
class Network:
    """How the board finds its network. By default it asks for an address (DHCP)."""

    hostname: str = setting("", doc="name of the board; empty: the gateway's id, or edgert", check=_hostname)
    address: str = setting("", doc="address with prefix length, such as 192.168.1.20/24; empty: DHCP", check=_interface)
    gateway: str = setting("", doc="address of the router, with a fixed address", check=_address)
    dns: str = setting("", doc="address of the name server, with a fixed address", check=_address)


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """The sections that are the board's and not the gateway's."""

    broker: LanBroker = section(LanBroker)
    network: Network = section(Network)


def files_untrusted(text: str, where: str = "edgert.toml", own_name: str = "") -> dict[str, str]:
    """Path below the board's /var/edgert -> content, for each file that a provisioning file stands for.

    `own_name` is the gateway's id where the file gives none; without both, the gateway makes it from its machine id.
    Raises `DocumentError` with every fault in it.
    """
    try:
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise DocumentError(where, [Problem("file", "TOML", str(error))]) from error
    if loose := [name for name, table in document.items() if not isinstance(table, dict)]:
        raise DocumentError(where, [Problem(name, f"a table [{name}]", show(document[name])) for name in loose])
    ours = {name for name, _, _ in sections(BoardSettings)}
    gateway = {name: table for name, table in document.items() if name not in ours}
    board = _read(BoardSettings, {name: document[name] for name in ours & set(document)}, where)
    if own_name and not gateway.get("gateway", {}).get("id"):
        gateway = {**gateway, "gateway": {**gateway.get("gateway", {}), "id": own_name}}
    if isinstance(board, BoardSettings) and board.broker.listen:
        for name in ("sensors", "central"):
            _at_home(gateway.setdefault(name, {}))
    settings = _read(GatewaySettings, gateway, where)
    if isinstance(board, DocumentError) or isinstance(settings, DocumentError):
        faults = [part.problems for part in (settings, board) if isinstance(part, DocumentError)]
        raise DocumentError(where, [problem for problems in faults for problem in problems])
    hostname = board.network.hostname or settings.gateway.id or "edgert"
    return {
        "gateway.toml": _toml(gateway),
        "mosquitto/listener.conf": _listeners(board.broker),
        "mosquitto/sensors.acl": SENSORS_ACL,
        "network/lan.network": _network(board.network),
        "network/hostname": f"{hostname.split('.')[0]}\n",
    }


def _read(cls: type[S], document: Mapping[str, Mapping[str, Any]], where: str) -> S | DocumentError:
    try:
        return parse(cls, _toml(document), {}, where)
    except DocumentError as error:
        return error


def _at_home(connection: dict[str, Any]) -> None:
    """Sets the port of the board's own broker where a connection names no other broker."""
    if connection.get("host", "127.0.0.1") in LOCAL:
        connection.setdefault("port", LOCAL_PORT)


def _toml(document: Mapping[str, Mapping[str, Any]]) -> str:
    """`document` as TOML: `parse` and the board's gateway read it."""
    parts = []
    for name, table in document.items():
        lines = [f"{_key(key)} = {_value(value)}\n" for key, value in table.items()]
        parts.append(f"[{_key(name)}]\n{''.join(lines)}")
    return "\n".join(parts)


def _key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """Any value that TOML can hold, as TOML writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):  # TOML wants the one character escaped that JSON does not
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date | time) else repr(value)


def _listeners(broker: LanBroker) -> str:
    if not broker.listen:
        return "listener 1883 127.0.0.1\nallow_anonymous true\n"
    own = f"per_listener_settings true\nlistener {LOCAL_PORT} 127.0.0.1\nallow_anonymous true\n"
    rules = "" if broker.control else f"acl_file {ACL}\n"
    return f"{own}listener {broker.port} {broker.listen}\nallow_anonymous true\n{rules}"


def _network(network: Network) -> str:
    if not network.address:
        return ""
    lines = [f"Address={network.address}"]
    lines += [f"Gateway={network.gateway}"] if network.gateway else []
    lines += [f"DNS={network.dns}"] if network.dns else []
    return "[Match]\nName=en* eth* end*\n\n[Network]\n" + "".join(f"{line}\n" for line in lines)
