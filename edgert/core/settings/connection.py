"""Settings of a connection to an MQTT broker."""

from __future__ import annotations

from dataclasses import dataclass

from edgert.core.config import setting
from edgert.core.settings.checks import PORT


def _host(text: str) -> str | None:
    """A name or an address alone: others write `mqtt://name:1883` or `name:1883`."""
    scheme, found, rest = text.partition("://")
    if found:
        name = rest.rpartition("@")[2].partition("/")[0].partition(":")[0] or "broker.local"
        tls = ", and tls = true" if scheme.lower() in ("mqtts", "ssl", "tls") else ""
        return f'a host without {scheme}://, such as host = "{name}"; the port stands in port{tls}'
    name, _, port = text.partition(":")
    if port.isdigit():  # an IPv6 address has more colons
        return f'a host without :{port}, such as host = "{name}"; the port stands in port'
    return None if text and not set(text) & set(" /@") else "a host name or address, nothing else"


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection to an MQTT broker."""

    host: str = setting("127.0.0.1", doc="host name or address of the broker", check=_host)
    port: int = setting(1883, doc="TCP port of the broker (with TLS usually 8883)", minimum=1, maximum=PORT)
    tls: bool = setting(False, doc="speak TLS; the broker's certificate and host name are checked")
    ca_file: str = setting(
        "", doc="certificates that may have signed the broker's; empty: those of the system", path=True
    )
    cert_file: str = setting("", doc="our certificate, where the broker asks for one", path=True)
    key_file: str = setting("", doc="private key of our certificate", secret_file=True)
    username: str = setting("", doc="user name; empty: none is sent")
    password_file: str = setting(
        "", doc="file whose first line is the password; it is never shown or logged", secret_file=True
    )
    protocol: str = setting(
        "auto", doc="MQTT version; auto: 5, and 3.1.1 if the broker refuses it", choices=("auto", "5", "3.1.1")
    )
    keep_alive_s: int = setting(
        30, doc="longest silence on the connection; 0: no limit", unit="s", minimum=0, maximum=65535
    )
