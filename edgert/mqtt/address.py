"""How a broker is written on a command line."""

from __future__ import annotations

from typing import Final

from edgert.core.errors import EdgertError, show

PORT: Final = 1883
TLS_PORT: Final = 8883


def scheme_fault(text: str) -> str | None:
    """The error text for an address with a scheme (`mqtt://host:1883`); None if it has none."""
    scheme, found, rest = text.partition("://")
    if not found:
        return None
    tls = scheme.lower() in ("mqtts", "ssl", "tls", "wss")
    bare = rest.rpartition("@")[2].rstrip("/") or "HOST"
    return f"a host without {scheme}://, such as {bare.partition(':')[0]}{', and tls beside it' if tls else ''}"


def split_broker(text: str, default_port: int = PORT) -> tuple[str, int]:
    """(host, port) of `host:port`, a host alone, or `[IPv6]:port`. Raises `EdgertError`."""
    if (fault := scheme_fault(text)) is not None:
        raise EdgertError(f"--broker: expected {fault}, got {show(text)}")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not host.endswith("]")):  # no port: also of an IPv6 address
        host, port = text, str(default_port)
    host = host.strip("[]")
    if not host or set(host) & set(" /@") or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise EdgertError(f"--broker: expected HOST[:PORT], such as broker.example:1883, got {show(text)}")
    return host, int(port)
