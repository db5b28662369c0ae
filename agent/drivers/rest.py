"""GET requests to the REST interface of an engine on this machine, with bounded time and size."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from agent.drivers.base import DriverError
from edgert.core.errors import show

TIMEOUT_S: Final = 2.0
LONGEST_ANSWER: Final = 16 * 1024 * 1024
Get = Callable[[str], Any]
"""Path, with its query -> parsed answer."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it could lead to another machine."""

    def redirect_request(self, *told: Any) -> None:
        return None


class Rest:
    """The REST interface of `engine`. Only addresses of this machine: the engine's threads are to be here."""

    def __init__(self, engine: str, address: str, example: str, timeout_s: float = TIMEOUT_S) -> None:
        if urlsplit(address).scheme != "http" or urlsplit(address).hostname not in ("127.0.0.1", "localhost", "::1"):
            raise DriverError(f"{engine}: expected an address of this machine such as {example}, got {show(address)}")
        self._engine, self._address, self._timeout_s = engine, address.rstrip("/"), timeout_s
        # No proxies: the variable http_proxy is for other machines.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)

    def get(self, path: str) -> Any:
        """The answer to a GET, parsed. Raises `DriverError`."""
        where = f"{self._engine}: {self._address}{path.partition('?')[0]}"
        try:
            with self._opener.open(self._address + path, timeout=self._timeout_s) as answer:
                text = answer.read(LONGEST_ANSWER + 1)
                if len(text) > LONGEST_ANSWER:
                    raise DriverError(f"{where}: expected at most {LONGEST_ANSWER} bytes, got more")
                return json.loads(text)
        except (OSError, ValueError) as error:
            raise DriverError(f"{where}: {error}") from error
