"""Batches of other gateways that are missing or damaged: they are told where they outlive the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgert.core.errors import StoreError
from edgert.core.settings.gateway import Links
from edgert.flow.plan import Location
from edgert.links.messages import Number
from edgert.links.protocol import Gap
from gateway.flows.plans import FLEET
from gateway.links.flow_links import DAMAGED, FlowLinks
from gateway.links.link_store import LinkStream
from tests.gateway.whole_gateway import Gateway, document
from tests.gateway.worlds import gaps
from tests.waiting import in_loop, until

AT = dict.fromkeys(("in", "minute", "out"), Location("g1", -1))
STREAM = LinkStream("f", "g2", "g1")


async def linked(path: Path) -> tuple[Gateway, FlowLinks]:
    gateway = Gateway(path)
    await gateway.flows.deploy(document(), FLEET, AT, 1)
    links = FlowLinks(
        "farm", "g1", Links(), gateway.database, gateway.store, gateway.host, gateway.ingest, gateway.clock
    )
    await links.sync(gateway.flows.runs)
    return gateway, links


@in_loop
async def test_batches_that_are_missing_or_damaged_stand_in_the_table_of_gaps(tmp_path: Path) -> None:
    gateway, links = await linked(tmp_path / "db")
    links.deliver(STREAM, Number(1, 4), b"no batch", Gap(Number(1, 1), Number(1, 4)))
    await until(lambda: len(gaps(gateway)) == 2, "both gaps")
    assert {gap.text.split(":")[0] for gap in gaps(gateway)} == {
        "batches of gateway g2 are missing for good",
        "a batch of gateway g2 is dropped",
    }
    assert links.dropped() == {("f", "", DAMAGED): 1}
    assert gateway.flows.runs["f"].progress.links["g2"] == (1, 4)
    await links.stop()
    gateway.crash()


@in_loop
async def test_a_batch_that_could_not_be_given_to_the_flow_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, links = await linked(tmp_path / "db")

    def fails(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(gateway.host, "deliver", fails)
    with pytest.raises(RuntimeError, match="no"):
        links.deliver(STREAM, Number(1, 1), b"", None)
    assert "g2" not in gateway.flows.runs["f"].progress.links
    await links.stop()
    gateway.crash()


@in_loop
async def test_a_stream_that_could_not_be_opened_is_opened_when_the_links_are_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, links = await linked(tmp_path / "db")
    await gateway.flows.remove("f")
    await links.sync(gateway.flows.runs)
    on_two = {"in": Location("g2", -1), "minute": Location("g1", -1), "out": Location("g3", -1)}
    await gateway.flows.deploy(document(), FLEET, on_two, 1)

    async def fails(*_: object) -> None:
        raise StoreError("the disk failed for a moment")

    for name in ("open_incoming", "open_outgoing"):
        with monkeypatch.context() as patch:
            patch.setattr(links.peers, name, fails)
            with pytest.raises(StoreError):
                await links.sync(gateway.flows.runs)
    await links.sync(gateway.flows.runs)
    states = {peer["gateway"]: (list(peer["incoming"]), list(peer["outgoing"])) for peer in links.status()["peers"]}
    assert states == {"g2": (["f"], []), "g3": ([], ["f"])}
    links.release("f")
    await links.stop()
    gateway.crash()
