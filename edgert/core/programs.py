"""The settings class of each program, by the program's name."""

from __future__ import annotations

from typing import Final

from edgert.core.agent_settings import AgentSettings
from edgert.core.settings import CollectorSettings, GatewaySettings

PROGRAMS: Final[dict[str, type[GatewaySettings | CollectorSettings | AgentSettings]]] = {
    "gateway": GatewaySettings,
    "collector": CollectorSettings,
    "agent": AgentSettings,
}
"""What `edgert config` knows by name."""
