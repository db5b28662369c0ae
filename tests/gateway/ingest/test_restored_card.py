"""A card that was put back knows fewer subscriptions than the sensors' broker, which still has messages by them."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.daemons import daemon, ends
from tests.gateway.ingest.subscribing_gateway import SubscribingGateway
from tests.gateway.whole_gateway import document
from tests.waiting import in_loop


@in_loop
async def test_a_message_by_a_subscription_that_an_older_card_does_not_know_goes_by_its_topic(tmp_path: Path) -> None:
    """Flow f was removed and deployed again since the card was copied, so its filter had another identifier."""
    board = SubscribingGateway(tmp_path / "db")
    await board.deploy("f")
    saved = await board.deploy("g", "y/{source}")
    assert await board.flows.remove("f")
    await board.deploy("f")
    newer = board.ids("x/+")
    board.crash()
    board = SubscribingGateway(tmp_path / "db", saved)
    assert board.ids("x/+") < newer, "as on the copy"
    board.feed(1, 1.0, ids=newer)
    assert board.ingest.inbox.table.is_lost(700), "a redelivery of what came since the copy cannot be told"
    assert board.ingest.known_session.unknown == 1
    board.feed(2, 2.0, ids=(*board.ids("y/+"), *newer))  # of a broker that names all subscriptions in one copy
    assert await board.checkpoint()
    saved = await board.deploy("h", "z/{source}")
    assert board.ids("z/+") > newer, "what waits by that subscription is not for h"
    board.crash()
    board = SubscribingGateway(tmp_path / "db", saved)
    board.feed(3, 3.0, ids=newer)
    assert await board.counted() == {"f": 3}


@in_loop
async def test_identifiers_of_a_database_without_its_mark_get_no_other_meaning(tmp_path: Path) -> None:
    first = daemon(tmp_path)
    await first.start()
    await first.flows.deploy(document(), "mqtt")
    await ends(first)
    (tmp_path / "gateway.db.mark").unlink()  # a copy of gateway.db alone looks like this
    again = daemon(tmp_path)
    await again.start()
    subscriptions = again.ingest.subscriptions
    await ends(again)
    assert subscriptions.lost
