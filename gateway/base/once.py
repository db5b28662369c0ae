"""What is tried again and again is said once for each error, not with every try."""

from __future__ import annotations

import logging


class Once:
    """Of what waits for one thing: says an error when it is another than the one before."""

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._said = log, ""

    def error(self, text: str, *values: object) -> None:
        said = text % values
        if said != self._said:
            self._log.error("%s", said)
        self._said = said
