"""The sections of a provisioning file (`edgert.toml`) that are neither the gateway's nor the agent's."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgert.core.config import section, setting
from edgert.core.errors import Problem

LOCAL_PORT: Final = 1884
"""Where the board's own programs reach its broker, when the network uses it too."""
SAVE_S: Final = 300
HOSTNAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
FLEET_KEY: Final = re.compile(r"([A-Za-z0-9+/]{43}=\n)+")
SERVICE: Final = re.compile(r"https://(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?/?")
TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")
MAC_KEY: Final = re.compile(r"[A-Za-z0-9+/]{43}=\n")
WIFI_NAME_BYTES: Final = 32
WIFI_PASSWORD: Final = re.compile(r"[ -~]{8,63}")
COUNTRY: Final = re.compile(r"[A-Z]{2}")
SSH_KEY: Final = re.compile(r"(?P<kind>[a-z0-9@.-]+) (?P<key>[A-Za-z0-9+/]{32,}={0,2})( (?!.*AAAA)[ -~]{0,200})?")
"""A public key: its kind, the key in base64, and a remark, which is no second key."""
SSH_KINDS: Final = frozenset((
    "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
))  # fmt: skip
"""Kinds of keys that the board's SSH server knows."""


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


def _pem(label: str) -> re.Pattern[str]:
    return re.compile(rf"(-----BEGIN {label}-----\n[A-Za-z0-9+/=\n]+-----END {label}-----\n)+")


_CERTIFICATES, _KEY, _CRL = _pem("CERTIFICATE"), _pem("PRIVATE KEY"), _pem("X509 CRL")


def _certificates(text: str) -> str | None:
    return None if not text or _CERTIFICATES.fullmatch(text) else "certificates as PEM"


def _key(text: str) -> str | None:
    return None if not text or _KEY.fullmatch(text) else "a private key as PEM (PKCS #8, without a password)"


def _crl(text: str) -> str | None:
    return None if not text or _CRL.fullmatch(text) else "a certificate revocation list as PEM"


def _fleet_key(text: str) -> str | None:
    return None if not text or FLEET_KEY.fullmatch(text) else "lines of a file made by `edgert fleet key`"


def _mac_key(text: str) -> str | None:
    return None if not text or MAC_KEY.fullmatch(text) else "the line of a file made by `edgert fleet mac-key --of`"


@dataclass(frozen=True, slots=True)
class LanBroker:
    """Access to the board's own broker over the network."""

    listen: str = setting(
        "", doc="address to listen on, such as 0.0.0.0; empty: the network cannot reach the broker", check=_address
    )
    port: int = setting(1883, doc="TCP port", minimum=1, maximum=65_535, check=_other_port)
    save_s: int = setting(
        SAVE_S,
        doc="the broker writes its memory to the card so often: a power cut loses what it has acknowledged since and "
        "the gateway had not committed; each save writes all that waits, also where nothing has changed",
        unit="s",
        minimum=1,
        maximum=86_400,
    )
    control: bool = setting(False, doc="flows and settings may be written, and results read, over this listener")


@dataclass(frozen=True, slots=True)
class Network:
    """How the board finds its network. By default it asks for an address (DHCP)."""

    hostname: str = setting("", doc="name of the board; empty: the gateway's id, or edgert", check=_hostname)
    address: str = setting("", doc="address with prefix length, such as 192.168.1.20/24; empty: DHCP", check=_interface)
    gateway: str = setting("", doc="address of the router, with a fixed address", check=_address)
    dns: str = setting("", doc="address of the name server, with a fixed address", check=_address)


@dataclass(frozen=True, slots=True)
class Identity:
    """Certificate and keys of the board, as `edgert fleet provision` writes them."""

    certificate: str = setting(
        "", doc="the board's certificate, then that of the CA which signed it (PEM)", check=_certificates
    )
    key: str = setting("", doc="private key of the certificate (PEM)", secret=True, check=_key)
    ca: str = setting("", doc="the fleet's root certificate (PEM)", check=_certificates)
    crl: str = setting("", doc="certificates that are revoked (PEM)", check=_crl)
    fleet_key: str = setting("", doc="lines of the fleet's key file", secret=True, check=_fleet_key)
    mac_key: str = setting("", doc="line of the gateway's file of its MAC key", secret=True, check=_mac_key)


def _wifi_name(text: str) -> str | None:
    return None if len(text.encode("utf-8", "replace")) <= WIFI_NAME_BYTES else f"at most {WIFI_NAME_BYTES} bytes"


def _wifi_password(text: str) -> str | None:
    return None if not text or WIFI_PASSWORD.fullmatch(text) else "8 to 63 printable ASCII characters"


def _country(text: str) -> str | None:
    return None if not text or COUNTRY.fullmatch(text) else "a country's two letters (ISO 3166), such as DE"


@dataclass(frozen=True, slots=True)
class Wifi:
    """A wireless network (WPA2). With it a fixed address of `[network]` belongs to the Wi-Fi; a cable uses DHCP."""

    name: str = setting("", doc="its name (SSID); empty: no Wi-Fi", check=_wifi_name)
    password: str = setting("", doc="its password", secret=True, check=_wifi_password)
    open: bool = setting(False, doc="it has no password: anybody may offer a network of its name")
    country: str = setting(
        "", doc="where the board is, such as DE: the channels allowed there; empty: those allowed everywhere",
        check=_country,
    )  # fmt: skip


def wifi_faults(wifi: Mapping[str, Any]) -> list[Problem]:
    """Problems between the settings of a table `[wifi]`: a password that was forgotten is no open network."""
    name, password, is_open = (bool(wifi.get(setting)) for setting in ("name", "password", "open"))
    if name and password == is_open:
        got = "both" if password else "neither"
        return [Problem("wifi.password", "either a password or wifi.open = true", got)]
    return [] if name or not any(wifi.values()) else [Problem("wifi.name", "the name of the network", "none")]


def _ssh_keys(keys: tuple[str, ...]) -> str | None:
    wrong = next((number for number, key in enumerate(keys, 1) if not _is_ssh_key(key)), 0)
    return f"lines of .pub files, as `ssh-ed25519 AAAA... name`; key {wrong} is none" if wrong else None


def _is_ssh_key(line: str) -> bool:
    """True if the key is whole: fields behind their lengths (4 bytes), the first of them its kind (RFC 4253, 6.6)."""
    found = SSH_KEY.fullmatch(line)
    if not found or found["kind"] not in SSH_KINDS:
        return False
    try:
        rest, fields = base64.b64decode(found["key"], validate=True), []
    except ValueError:
        return False
    while len(rest) >= 4:
        length = 4 + int.from_bytes(rest[:4], "big")
        fields.append(rest[4:length])
        rest = rest[length:] if length <= len(rest) else b"\0"
    return not rest and len(fields) > 1 and fields[0] == found["kind"].encode()


@dataclass(frozen=True, slots=True)
class Ssh:
    """A shell on the board over SSH (port 22). Passwords are never taken."""

    keys: tuple[str, ...] = setting(
        (), doc="keys whose owners log in as root, each the line of a `.pub` file; none: no SSH", check=_ssh_keys
    )


def _service(text: str) -> str | None:
    return None if not text or SERVICE.fullmatch(text) else "https://HOST or https://HOST:PORT"


def _token(text: str) -> str | None:
    return None if not text or TOKEN.fullmatch(text) else "a token made by `edgert fleet token`"


def _fingerprint(text: str) -> str | None:
    return None if not text or FINGERPRINT.fullmatch(text) else "a SHA-256 of 64 hexadecimal digits"


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The service of the fleet's owner that signs certificates (`edgert fleet serve`)."""

    url: str = setting(
        "",
        doc="its address, such as https://ca.example:8443; the board has its certificate renewed there before it ends",
        check=_service,
    )
    token: str = setting(
        "", doc="for a board without an identity: it gets one for this token, once", secret=True, check=_token
    )
    ca_sha256: str = setting("", doc="with a token: SHA-256 of the fleet's root certificate (DER)", check=_fingerprint)


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """The sections that are the board's and neither the gateway's nor the agent's."""

    broker: LanBroker = section(LanBroker)
    network: Network = section(Network)
    wifi: Wifi = section(Wifi)
    ssh: Ssh = section(Ssh)
    identity: Identity = section(Identity)
    enrolment: Enrolment = section(Enrolment)
