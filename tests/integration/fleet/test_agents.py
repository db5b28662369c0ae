"""Real agents on loopback find each other, notice a death and a return, rotate keys, and answer nobody outside."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.membership.keys import KeyRing
from edgert.boards.authority import Authority, create
from edgert.control.client import call
from edgert.core.errors import EdgertError
from tests.agent.rig import RealAgent
from tests.integration.fleet_world import told
from tests.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.integration
KEY, NEXT = bytes(range(32)), bytes(range(32, 64))
ALL = {"board-1": "alive", "board-2": "alive", "board-3": "alive"}


def status_of(agent: RealAgent) -> dict[str, Any]:
    """Its status, which a busy machine may take long to give."""
    found: dict[str, Any] = call(agent.folder / "agent.sock", "fleet.status", timeout_s=DEADLINE_S)
    return found


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[list[RealAgent]]:
    """Three agents that know each other; the first is the others' seed."""
    first = RealAgent(tmp_path, "board-1", [], [KEY])
    fleet = [first, *(RealAgent(tmp_path, f"board-{n}", [first.port], [KEY]) for n in (2, 3))]
    try:
        for agent in fleet:
            agent.start()
        for agent in fleet:
            wait_until(lambda a=agent: a.states() == ALL, f"{agent.name} to see all")  # type: ignore[misc]
        yield fleet
    finally:
        for agent in fleet:
            agent.kill()
            print(agent.name, agent.log())


@pytest.mark.parametrize("boards", [2, 3])
def test_boards_whose_seeds_are_given_by_name_become_one_fleet(tmp_path: Path, boards: int) -> None:
    """The address of a member is no name: each seed is asked until it has answered."""
    fleet = [RealAgent(tmp_path, f"board-{n + 1}", [], [KEY]) for n in range(boards)]
    seeds = ", ".join(f'"localhost:{agent.port}"' for agent in fleet)
    try:
        for agent in fleet:
            agent.config.write_text(agent.config.read_text().replace("seeds = []", f"seeds = [{seeds}]"))
            agent.start()
        for agent in fleet:
            voters = lambda a=agent: a.status().get("coordination", {}).get("boards")  # noqa: E731
            wait_until(lambda v=voters: v() == sorted(ALL)[:boards], f"{agent.name} to know all voters")  # type: ignore[misc]
    finally:
        for agent in fleet:
            agent.kill()
            print(agent.name, agent.log())


def test_distances_are_measured_and_estimated(agents: list[RealAgent], capsys: pytest.CaptureFixture[str]) -> None:
    def others() -> list[dict[str, object]]:
        return [member for member in status_of(agents[1])["members"] if not member["self"]]

    def known() -> bool:
        return all(m["measured_ms"] and m["estimated_ms"] is not None and m["coordinate"] for m in others())

    wait_until(known, "round-trip times and coordinates of all")
    assert all(
        member["board"]["cores"] >= 1 and member["board"]["speed"] > 0 for member in status_of(agents[1])["members"]
    )
    status = ["fleet", "status", "--config", str(agents[1].config)]
    said = told(capsys, *status, holds=lambda said: "3 of 3 alive; its gateway does not answer" in said)
    assert "board-2 *" in said


def test_killed_agent_is_dead_for_all_and_returns(agents: list[RealAgent]) -> None:
    agents[2].kill()
    for agent in agents[:2]:
        wait_until(lambda a=agent: a.states().get("board-3") == "dead", f"{agent.name} to see the death")  # type: ignore[misc]
    before = epoch(agents[0], "board-3")
    agents[2].start()
    for agent in agents:
        wait_until(lambda a=agent: a.states() == ALL, f"{agent.name} to see the return")  # type: ignore[misc]
    assert epoch(agents[0], "board-3") > before


def epoch(agent: RealAgent, of: str) -> int:
    return next(int(member["epoch"]) for member in status_of(agent)["members"] if member["gateway"] == of)


def test_revoked_board_is_no_member_although_it_runs_and_holds_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, now = tmp_path / "ca", datetime.now(UTC)
    create(ca, "default", now)
    authority = Authority(ca)
    authority.board("board-2", now, timedelta(days=1))
    first = RealAgent(tmp_path, "board-1", [], [KEY])
    second = RealAgent(tmp_path, "board-2", [first.port], [KEY])
    try:
        monkeypatch.setenv("EDGERT_MOVES_PERIOD_S", "0.5")  # so often it looks at the file
        second.start()  # has no list
        monkeypatch.setenv("EDGERT_AGENT_CRL_FILE", str(ca / "crl.pem"))
        first.start()
        wait_until(lambda: first.states().get("board-2") == "alive", "the two to meet")
        authority.revoke("board-2", now)
        wait_until(lambda: first.states().get("board-2") == "dead", "board-1 to read the list")
        wait_until(lambda: status_of(first)["counters"]["drops"].get("revoked", 0) > 5, "its packets to be dropped")
        assert {m["gateway"]: m["state"] for m in status_of(first)["members"]}["board-2"] == "dead"
        assert "revoked boards are no members: board-2" in first.log()
    finally:
        for agent in (first, second):
            agent.kill()


def test_agent_that_leaves_is_not_dead(agents: list[RealAgent]) -> None:
    with pytest.raises(EdgertError, match=r"may have parts of flows, and its gateway does not answer.*--force"):
        call(agents[1].folder / "agent.sock", "fleet.leave", timeout_s=DEADLINE_S)
    assert call(agents[1].folder / "agent.sock", "fleet.leave", {"force": True}, DEADLINE_S) == {"left": True}
    for agent in (agents[0], agents[2]):
        wait_until(lambda a=agent: a.states().get("board-2") == "left", f"{agent.name} to see it leave")  # type: ignore[misc]
    process = agents[1].process
    assert process is not None
    assert process.wait(60.0) == 0


def test_key_rotates_while_the_fleet_runs(agents: list[RealAgent]) -> None:
    for keys in ([KEY, NEXT], [NEXT, KEY], [NEXT]):
        for agent in agents:
            agent.write_keys(keys)
        expected = KeyRing(keys).identifiers
        for agent in agents:
            wait_until(lambda a=agent, e=expected: status_of(a)["keys"] == e, "the keys to be read")  # type: ignore[misc]
        for agent in agents:
            wait_until(lambda a=agent, e=expected: keys_of_all(a) == [e] * len(ALL), "all to see the keys of all")  # type: ignore[misc]
    wait_until(lambda: all(agent.states() == ALL for agent in agents), "all to see all")
    assert all(status_of(agent)["counters"]["drops"] == {} for agent in agents)


def keys_of_all(agent: RealAgent) -> list[object]:
    """The ids of each member's keys, as this agent knows them."""
    return [member["board"].get("keys") for member in status_of(agent)["members"]]


def test_strangers_are_counted_and_never_answered(agents: list[RealAgent]) -> None:
    at = ("127.0.0.1", agents[0].port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(1.0)
        for packet in (b"", b"x" * 40, b"\x01" + bytes(100), bytes(2_000)):
            udp.sendto(packet, at)
        with pytest.raises(TimeoutError):
            udp.recv(2_000)
    for frame in (struct.pack("<I", 50) + b"\x01" + bytes(49), struct.pack("<I", 2**31)):
        with socket.create_connection(at, timeout=DEADLINE_S) as tcp:
            tcp.sendall(frame)
            assert tcp.recv(100) == b""
    drops = status_of(agents[0])["counters"]["drops"]
    assert drops["too large"] == 2
    assert drops["unknown key"] == 2
    assert drops["truncated"] == 2
