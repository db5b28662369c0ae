"""A gateway whose address for links is not there yet, or goes, runs without links and tries again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from edgert.core.settings.gateway import Links
from edgert.links.tls import Identity
from gateway.links.link_store import LinkStore
from gateway.links.peers import Peers
from tests.gateway.links.linked_boards import Database
from tests.lab import namespaces
from tests.lab.namespaces import Namespace
from tests.links.certificates import FLEET
from tests.waiting import in_loop, until

pytestmark = pytest.mark.skipif(bool(namespaces.lack()), reason=str(namespaces.lack()))


@pytest.fixture
def network() -> Iterator[Namespace]:
    namespace = Namespace()
    yield namespace
    namespace.close()


def ipv6(off: bool) -> None:
    Path("/proc/sys/net/ipv6/conf/lo/disable_ipv6").write_text(str(int(off)))


def test_links_wait_for_their_address(network: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    """The gateway did not start, so that flows of this board alone stood still, too."""

    @in_loop
    async def test() -> None:
        peers = Peers(
            Identity(FLEET, "a"), Links(True, "::1", 0), cast(LinkStore, Database()), lambda *_: None, lambda *_: None
        )
        peers.tick_s = 0.02
        await peers.start()
        assert "expected an address of this board, got ::1" in peers.status()["listen_error"]
        assert peers.status()["port"] == 0
        ipv6(off=False)
        await until(lambda: peers.status()["port"], "the listener")
        assert peers.status()["listen_error"] == ""
        port = peers.status()["port"]
        ipv6(off=True)
        await until(lambda: peers.status()["listen_error"], "the error")
        ipv6(off=False)
        await until(lambda: not peers.status()["listen_error"], "the address")
        assert peers.status()["port"] == port
        await peers.stop()

    with network.inside():
        test()
    assert sum("cannot link to this one" in text for text in caplog.messages) == 2
