"""The settings class of each program, by the program's name."""

from __future__ import annotations

from typing import Final

from edgert.core.settings.agent import AgentSettings
from edgert.core.settings.central import CollectorSettings
from edgert.core.settings.gateway import GatewaySettings

PROGRAMS: Final[dict[str, type[GatewaySettings | CollectorSettings | AgentSettings]]] = {
    "gateway": GatewaySettings,
    "collector": CollectorSettings,
    "agent": AgentSettings,
}
"""The programs that `edgert config` knows, by name."""
