"""Real agents whose board's address changes while they run, in a network namespace."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgert.links.local_address import SEGMENT, NoAddressError, bound_segments, local_address
from tests.agent.rig import RealAgent
from tests.lab import namespaces
from tests.lab.namespaces import INTERFACE, Namespace
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(namespaces.lack()), reason=str(namespaces.lack()))
KEY, HARDWARE = bytes(32), b"\x02\0\0\0\0\5"


@pytest.fixture
def network() -> Iterator[Namespace]:
    """A namespace with the interface eth0 at 10.77.0.5."""
    namespace = Namespace()
    tap = namespace.add_tap("10.77.0.5", HARDWARE)
    yield namespace
    os.close(tap)
    namespace.close()


def readdress(network: Namespace, address: str) -> None:
    with network.inside():
        namespaces._configure(INTERFACE, address, "255.255.255.0")


def agents(folder: Path, network: Namespace, bind: str) -> tuple[RealAgent, RealAgent, RealAgent]:
    """Agents a and b at 127.0.0.1, and c that listens on `bind`, all in the namespace."""
    a = RealAgent(folder, "a", [], [KEY])
    b, c = (RealAgent(folder, name, [a.port], [KEY]) for name in "bc")
    c.config.write_text(c.config.read_text().replace("[agent]\n", f'[agent]\nbind = "{bind}"\n'))
    with network.inside():
        for agent in a, b, c:
            agent.start()
    return a, b, c


def alive(a: RealAgent, address: str) -> bool:
    member = next((m for m in a.status().get("members", []) if m["gateway"] == "c"), None)
    return member is not None and member["state"] == "alive" and member["address"][0] == address


@pytest.mark.integration
def test_replaced_address_of_an_interface_is_followed(tmp_path: Path, network: Namespace) -> None:
    """The others held it for dead, and it held all for alive, without a line in its log."""
    a, b, c = agents(tmp_path, network, INTERFACE)
    try:
        wait_until(lambda: alive(a, "10.77.0.5") and alive(b, "10.77.0.5"), "the three to meet")
        readdress(network, "10.77.0.9")
        wait_until(lambda: alive(a, "10.77.0.9") and alive(b, "10.77.0.9"), "the new address to be known")
        assert "the agent listens on 10.77.0.9" in c.log()
        assert {*c.states().values()} == {"alive"}
    finally:
        for agent in a, b, c:
            agent.kill()


@pytest.mark.integration
def test_agent_starts_without_its_address_and_is_reached_when_it_comes(tmp_path: Path, network: Namespace) -> None:
    """It refused to start, so that no part of the board was looked after; and when its address goes, it says so."""
    a, b, c = agents(tmp_path, network, "10.77.0.9")
    try:
        wait_until(lambda: "expected an address of this board, got 10.77.0.9" in c.log(), "the error")
        assert c.status()["address_error"]
        readdress(network, "10.77.0.9")
        wait_until(lambda: alive(a, "10.77.0.9"), "the agent to be reached")
        readdress(network, "10.77.0.5")
        wait_until(lambda: c.status()["address_error"] != "", "the error to be told again")
        wait_until(lambda: a.states().get("c") == "dead", "its death")
        readdress(network, "10.77.0.9")
        wait_until(lambda: alive(a, "10.77.0.9"), "the agent to be reached again")
    finally:
        for agent in a, b, c:
            agent.kill()


def test_local_address_is_that_of_the_interface_or_of_the_default_route(network: Namespace) -> None:
    with network.inside():
        assert local_address(INTERFACE) == "10.77.0.5"
        assert local_address("127.0.0.1") == "127.0.0.1"
        for text, error in (
            ("eth7", "the interface eth7 with an IP address, got none; interfaces: eth0, lo"),
            ("10.77.0.9", "an address of this board, got 10.77.0.9"),
            ("default", "a default route, got none"),
        ):
            with pytest.raises(NoAddressError, match=error):
                local_address(text)


@pytest.mark.skipif(shutil.which("ip") is None, reason="ip(8) of iproute2 is not there")
def test_local_address_follows_the_better_route_and_the_change_to_ipv6(network: Namespace) -> None:
    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    with network.inside():
        ip("route", "add", "default", "dev", INTERFACE, "metric", "20")
        assert local_address("default") == "10.77.0.5"
        ip("tuntap", "add", "wlan0", "mode", "tap")
        ip("link", "set", "wlan0", "up")
        ip("addr", "add", "10.78.0.5/24", "dev", "wlan0")
        ip("route", "add", "default", "dev", "wlan0", "metric", "10")
        assert local_address("default") == "10.78.0.5"
        ip("link", "set", "wlan0", "down")
        assert local_address("default") == "10.77.0.5"
        Path(f"/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6").write_text("0")
        ip("addr", "add", "fd00::5/64", "dev", INTERFACE, "nodad")
        assert local_address(INTERFACE) == "10.77.0.5", "IPv4 goes first"
        ip("addr", "del", "10.77.0.5/24", "dev", INTERFACE)
        assert local_address(INTERFACE) == "fd00::5"
        ip("-6", "route", "add", "default", "dev", INTERFACE)
        assert local_address("default") == "fd00::5"


def test_connections_have_segments_that_a_path_of_1280_bytes_carries(network: Namespace) -> None:
    """Larger ones are dropped without a word on some paths, and links stood still."""
    with network.inside(), socket.create_server(("10.77.0.5", 0)) as listening:
        bound_segments(listening, "10.77.0.5")
        with socket.create_connection(listening.getsockname()) as asking, listening.accept()[0] as taken:
            sizes = [end.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) for end in (asking, taken)]
    assert all(0 < size <= SEGMENT for size in sizes), sizes
