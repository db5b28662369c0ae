"""Risks of settings that are valid: said by `edgert config check` and at each start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any

from edgert.core.settings.central import Collector
from edgert.core.settings.connection import Connection
from edgert.core.settings.gateway import Web
from edgert.core.text.hosts import is_loopback


def cautions(settings: Any, others_may_read: Callable[[str], bool]) -> list[str]:
    """A sentence for each setting that exposes something. `settings`: those of a program. `others_may_read` says of a
    path whether every user of this machine may read the file."""
    found: list[str] = []
    for field in fields(settings):
        section = getattr(settings, field.name)
        if isinstance(section, Connection) and getattr(section, "enabled", True):
            found += _of_connection(field.name, section, others_may_read)
        elif isinstance(section, Web) and section.enabled and not is_loopback(section.host):
            found.append(
                f"{field.name}.host: whoever can reach {section.host} sees the page and the metrics, which ask for no "
                "password; 127.0.0.1 with a tunnel or a proxy in front keeps them to those who may"
            )
        elif isinstance(section, Collector) and section.mac_key_file:
            found += _of_secrets(field.name, section, ("mac_key_file",), others_may_read)
            if section.accept_unsigned:
                found.append(
                    f"{field.name}.accept_unsigned: who may write to the broker still forges results of any gateway; "
                    "set it to false when all gateways have their key"
                )
    return found


def _of_connection(name: str, section: Connection, others_may_read: Callable[[str], bool]) -> Iterator[str]:
    if not section.tls and not is_loopback(section.host):
        what = "the password and all data go" if section.username else "all data goes"
        yield f"{name}.tls: {what} to {section.host} unencrypted, and the broker's name is not checked; set tls = true"
    yield from _of_secrets(name, section, ("password_file", "key_file", "mac_key_file"), others_may_read)


def _of_secrets(
    name: str, section: Any, settings: Iterable[str], others_may_read: Callable[[str], bool]
) -> Iterator[str]:
    for setting in settings:
        if (path := getattr(section, setting, "")) and others_may_read(path):
            yield f"{name}.{setting}: every user of this machine may read {path}; chmod 600 it"
