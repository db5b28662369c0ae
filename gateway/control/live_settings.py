"""Settings that a `config` message may change while the gateway runs: only what cannot cut the board off."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgert.core.config import parse
from edgert.core.errors import DocumentError, Problem, show
from edgert.core.log import set_up
from edgert.core.settings.gateway import GatewaySettings
from edgert.core.toml import to_toml
from edgert.scheduling.consumption import CONSUMPTIONS
from gateway.hosts.host import Host

ROWS: Final = "pool.consumption_rows"
LEVEL: Final = "log.level"
LIVE: Final = (ROWS, LEVEL)
"""All others belong to the file on the board."""


async def apply_settings(document: Mapping[str, Any], consumption: str, host: Host) -> Mapping[str, Any]:
    """Changes all that `document` says, or nothing; `consumption` is the one that the gateway was started with. Returns
    the answer. Raises `DocumentError`."""
    given = dict(_leaves(document))
    problems = [
        Problem(path, f"one of {', '.join(LIVE)} (others are set in gateway.toml)", show(value))
        for path, value in given.items()
        if path not in LIVE
    ]
    if ROWS in given and consumption != "at-most":
        why = f"nothing: pool.consumption is {consumption} (in gateway.toml), and only at-most goes by a number"
        problems.append(Problem(ROWS, why, show(given[ROWS])))
    if problems:
        raise DocumentError("config", problems)
    try:
        text = to_toml(document)
    except ValueError as error:  # JSON has null, settings have not
        raise DocumentError("config", [Problem("document", "values that a setting can have", str(error))]) from None
    settings = parse(GatewaySettings, text, {}, "config")
    if ROWS in given:
        rows = settings.pool.consumption_rows
        host.consume(CONSUMPTIONS[consumption](rows), rows)
    if LEVEL in given:
        set_up(settings.log.level, env=os.environ)
        host.log_level(settings.log.level)
    return {"applied": sorted(given)}


def _leaves(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(section.key, value) of each setting in a document; (section, value) where no section stands."""
    for section, table in document.items():
        if isinstance(table, Mapping):
            yield from ((f"{section}.{key}", value) for key, value in table.items())
        else:
            yield section, table
