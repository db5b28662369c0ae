"""Error logging for work that is retried: each error is logged once, not with every try."""

from __future__ import annotations

import logging


class RetryLog:
    """Logs the errors of one piece of retried work; an error equal to the last one is not logged again."""

    def __init__(self, log: logging.Logger) -> None:
        self._log, self._said = log, ""

    def error(self, text: str, *values: object) -> None:
        said = text % values
        if said != self._said:
            self._log.error("%s", said)
        self._said = said
