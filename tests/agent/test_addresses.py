"""Settings of an agent that cannot work are refused by name, and packets that do not leave are counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.fleet.status import check_links
from agent.membership.events import Datagram
from agent.membership.members import Peer, Section
from agent.membership.parameters import Parameters
from edgert.core import config
from edgert.core.errors import DocumentError, EdgertError
from edgert.core.packing import pack
from edgert.core.settings.agent import Agent, AgentSettings
from tests.agent.membership.worlds import started
from tests.waiting import in_loop

LONGEST = ["n" * 280 + "=" + "v" * 313]
MANY = [f"k{n:02}=v{n:02}" for n in range(60)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('advertise = "localhost"', "agent.advertise: expected an IP address, .* as packets go to addresses"),
        ('advertise = "0.0.0.0"', "agent.advertise: expected the IP address that other boards reach"),
        ('bind = "board1.local"', "agent.bind: expected an IP address"),
        (f"labels = {[*LONGEST, 'a=b']}", "agent.labels: expected labels of 600 bytes together, with 3 for each"),
    ],
)
def test_an_agent_does_not_begin_with_what_cannot_work(text: str, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        config.parse(AgentSettings, f"[agent]\n{text}\n", {})


def test_an_address_that_stands_for_all_is_told_to_nobody() -> None:
    with pytest.raises(
        EdgertError, match=r"agent\.advertise: expected the IP address .* agent.bind is 0\.0\.0\.0; got none"
    ):
        Agent(bind="0.0.0.0").check()
    for fit in Agent(bind="0.0.0.0", advertise="10.0.0.1"), Agent(bind="10.0.0.2"), Agent(bind="eth0"):
        fit.check()


@pytest.mark.parametrize("labels", [LONGEST, MANY])
def test_labels_that_the_settings_take_can_be_told(labels: list[str]) -> None:
    """More raised an error at each publication, and the board had no address for links."""
    config.parse(AgentSettings, f"[agent]\nlabels = {labels}\n", {})
    board = {
        "cores": 4.25, "speed": 123456.789, "memory_mib": 7812, "bandwidth_mbit": 1000.5,
        "link": ["fd00:1111:2222:3333:4444:5555:6666:7777", 65535], "drained": False, "keys": ["01234567"] * 4,
        "labels": dict(label.partition("=")[::2] for label in labels),
    }  # fmt: skip
    assert len(pack(board)) <= Parameters().max_section_bytes


def test_a_flow_does_not_come_to_a_board_of_which_no_address_for_links_is_known() -> None:
    """Operators went there, and no row."""
    ports = {"a": 8883, "b": 0, "c": 0}
    sections = {name: {"board": Section(1, 1, pack({"link": [name, port]}))} for name, port in ports.items()}
    members = cast(Any, [SimpleNamespace(name=name, sections=sections.get(name, {})) for name in "abcd"])
    check_links(members, {"in": "c", "out": "c"})
    with pytest.raises(EdgertError, match="got b, c, of which no address for links is known"):
        check_links(members, {"in": "a", "window": "b", "out": "c"})
    with pytest.raises(EdgertError, match=r"got d, .*: try again in some seconds"):
        check_links(members, {"in": "a", "window": "d"})


def test_a_board_whose_gateway_is_away_for_a_moment_is_not_refused() -> None:
    """Its agent tells no port meanwhile: two thirds of the moves amid restarts were refused."""
    told = {"board": {"link": ["b", 0]}, "flows": {"gateway": False}}
    away = {name: Section(1, 1, pack(value)) for name, value in told.items()}
    there = {"board": Section(1, 1, pack({"link": ["a", 8883]}))}
    members = [SimpleNamespace(name="a", sections=there), SimpleNamespace(name="b", sections=away)]
    check_links(cast(Any, members), {"in": "a", "window": "b"})


@in_loop
async def test_a_packet_that_does_not_leave_is_counted() -> None:
    """A loop of uvloop refuses names in place of addresses."""
    transport = await started("a")

    def refuse(packet: bytes, to: Any) -> None:
        raise ValueError("DNS lookup is required")

    assert transport._udp is not None
    closing, transport._udp = transport._udp, cast(Any, SimpleNamespace(sendto=refuse, is_closing=lambda: False))
    transport.membership._outputs = [Datagram(Peer("b", 1, ("localhost", 1)), b"x")]
    transport.step()
    assert transport.sealer.drops == {"not sent": 1}
    transport._udp = closing
    await transport.stop()
