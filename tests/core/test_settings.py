"""The settings of our programs."""

from __future__ import annotations

import pytest

from edgert.core import config
from edgert.core.errors import DocumentError
from edgert.core.settings.central import CollectorSettings
from edgert.core.settings.folders import data_folder
from edgert.core.settings.gateway import GatewaySettings
from edgert.core.settings.programs import PROGRAMS
from edgert.core.toml import literal
from edgert.scheduling.consumption import CONSUMPTIONS
from edgert.scheduling.policies import POLICIES


@pytest.mark.parametrize("program", PROGRAMS)
def test_defaults_satisfy_their_own_rules(program: str) -> None:
    cls = PROGRAMS[program]
    text = ""
    for name, _, _ in config.sections(cls):
        own = [e for e in config.entries(cls) if e.section == name]
        text += f"[{name}]\n" + "".join(f"{e.name} = {literal(e.default)}\n" for e in own)
    assert config.parse(cls, text, {}) == cls()


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_duration_and_size_carries_its_unit(program: str) -> None:
    for entry in config.entries(PROGRAMS[program]):
        assert entry.name.endswith("_s") == (entry.about.unit == "s"), entry.path
        assert entry.name.endswith("_bytes") == (entry.about.unit == "bytes"), entry.path


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_variable_sets_two_settings(program: str) -> None:
    variables = [e.variable for e in config.entries(PROGRAMS[program])]
    assert len(variables) == len(set(variables))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[gateway]\nid = "a/b"', "gateway.id: expected 1 to 63 letters"),
        ('[gateway]\nfleet = ""', "gateway.fleet: expected a name, not nothing"),
        ("[pool]\nslots = 65", "pool.slots: expected"),
        ('[pool]\npolicy = "owpoa"', "pool.policy: expected one of congestion-aware, "),
        ('[sensors]\nprotocol = "4"', "sensors.protocol: expected one of auto, 5, 3.1.1"),
        ("[sensors]\nlatency_budget_s = -1", "sensors.latency_budget_s: expected a number from 0 to 1"),
    ],
)
def test_impossible_value_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        config.parse(GatewaySettings, text, {})


def test_both_connections_are_set_apart() -> None:
    got = config.parse(GatewaySettings, "", {"EDGERT_SENSORS_PORT": "1", "EDGERT_CENTRAL_PORT": "2"})
    assert (got.sensors.port, got.central.port) == (1, 2)
    assert config.parse(CollectorSettings, "", {"EDGERT_CENTRAL_PORT": "3"}).central.port == 3


def test_every_scheduling_policy_can_be_chosen() -> None:
    policy = next(e for e in config.entries(GatewaySettings) if e.path == "pool.policy")
    assert policy.about.choices == tuple(POLICIES)
    consumption = next(e for e in config.entries(GatewaySettings) if e.path == "pool.consumption")
    assert consumption.about.choices == tuple(CONSUMPTIONS)


@pytest.mark.parametrize(
    ("env", "root", "folder"),
    [
        ({"STATE_DIRECTORY": "/var/lib/x:/var/lib/y", "HOME": "/h"}, False, "/var/lib/x"),
        ({"HOME": "/root"}, True, "/var/lib/edgert"),
        ({"HOME": "/h"}, False, "/h/.local/state/edgert"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/s"}, False, "/s/edgert"),
    ],
)
def test_data_folder_follows_service_root_and_xdg(env: dict[str, str], root: bool, folder: str) -> None:
    assert data_folder(env, root) == folder
