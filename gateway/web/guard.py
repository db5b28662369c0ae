"""The Host check and the security headers of every route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from edgert.core.text.hosts import is_loopback

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
AsgiSend = Callable[[AsgiMessage], Awaitable[None]]
App = Callable[[AsgiMessage, Receive, AsgiSend], Awaitable[None]]

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def host_name_untrusted(header: bytes) -> str:
    """The host of a Host header: lower case, without port and brackets."""
    text = header.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


class WebGuard:
    """Adds the security headers; bound on loopback it answers only to names of loopback.

    Without that check a page from elsewhere could have its own name resolve to 127.0.0.1 (DNS rebinding) and read
    this gateway through the user's browser. The port is not compared, so that an SSH tunnel on another port works.
    """

    def __init__(self, app: App, bound_host: str) -> None:
        self._app = app
        self._only_loopback = is_loopback(bound_host)

    async def __call__(self, scope: AsgiMessage, receive: Receive, send: AsgiSend) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        if self._only_loopback and not self._is_for_us(scope):
            await _refuse(send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _is_for_us(self, scope: AsgiMessage) -> bool:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        return len(hosts) == 1 and is_loopback(host_name_untrusted(hosts[0]))


async def _refuse(send: AsgiSend) -> None:
    body = b"This gateway listens on loopback and answers only to localhost, 127.0.0.1 and [::1].\n"
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 421, "headers": headers})
    await send({"type": "http.response.body", "body": body})
