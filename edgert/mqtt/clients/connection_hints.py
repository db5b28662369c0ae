"""Hints for a connection that does not come about. Pure: error texts in, a sentence out."""

from __future__ import annotations

from typing import Final

from edgert.mqtt.address import PORT, TLS_PORT

NO_TLS_THERE: Final = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF", "EOF occurred", "record layer failure", "HTTP_REQUEST")
CLOCK: Final = ("certificate is not yet valid", "certificate has expired")
CLOSED: Final = ("reset", "closed", "lost connection")
SILENT: Final = "keep alive timeout"


def short_lived(soon_s: float, client_id: str) -> str:
    """`; ...`: what several connections may mean that ended soon, though the broker gave no reason."""
    return (
        f"; several connections in a row ended within {soon_s:g} s: does another client use the id {client_id}, or "
        "does the broker not take what is sent?"
    )


def hint(error: str, *, tls: bool, port: int, accepted: bool = True) -> str:
    """`; ...`: what to look at, or nothing. `accepted`: the TCP connection was made, whatever became of it."""
    if any(text in error for text in CLOCK):
        return "; by this board's clock the broker's certificate is not valid now: set the clock, or renew it"
    if "CERTIFICATE_VERIFY_FAILED" in error:
        return "; set ca_file to the certificate of the authority that signed the broker's, and host to the name in it"
    if "CERTIFICATE_REQUIRED" in error or "certificate required" in error:
        return "; the broker asks for a certificate of ours: set cert_file and key_file"
    if SILENT in error.lower():
        return "; it takes connections and does not answer"
    ended = any(text.lower() in error.lower() for text in CLOSED)
    if tls and (any(text in error for text in NO_TLS_THERE) or (ended and accepted)):
        usual = f"usually {TLS_PORT}" if port == PORT else f"{port} speaks none, it seems"
        return f"; does this port speak TLS? Set the broker's TLS port ({usual}), or tls = false"
    if not tls and ended and accepted:
        return "; it hung up before it answered: if this is the broker's TLS port, set tls = true"
    return ""
