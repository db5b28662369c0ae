"""Where a gateway's page finds the agent of its board."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from edgert.core.errors import EdgertError
from edgert.core.settings.gateway import Gateway, GatewaySettings, Web
from gateway.control.agent_link import AgentLink


def link(folder: Path, socket: str = "") -> AgentLink:
    settings = GatewaySettings(gateway=Gateway(data_dir=str(folder)), web=Web(agent_socket=socket))
    return AgentLink(settings, cast(Any, None))


def test_the_agent_says_where_it_is_and_the_settings_say_so_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    anywhere, set_ = link(tmp_path), link(tmp_path, "/set/agent.sock")
    assert anywhere.socket() == f"{tmp_path}/agent.sock"
    for one in (anywhere, set_):
        asyncio.run(cast(Any, one.verbs()["agent.here"]({"socket": "/elsewhere/agent.sock"})))
    assert anywhere.socket() == "/elsewhere/agent.sock"
    assert set_.socket() == "/set/agent.sock"


@pytest.mark.parametrize("socket", [None, 5, "", "agent.sock"])
def test_what_is_no_whole_path_is_refused(tmp_path: Path, socket: object) -> None:
    with pytest.raises(EdgertError, match="expected socket: the whole path"):
        asyncio.run(cast(Any, link(tmp_path).verbs()["agent.here"]({"socket": socket})))
