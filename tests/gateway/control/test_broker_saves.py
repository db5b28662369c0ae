"""The board's own broker is asked to save when it has something new to remember."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from edgert.core.settings.gateway import Gateway, GatewaySettings, Sensors
from gateway.control.broker_saves import BrokerSaves, saving
from tests.waiting import in_loop, until


@in_loop
async def test_each_change_leaves_one_request(tmp_path: Path) -> None:
    request, state = tmp_path / "broker-save.request", dict[str, Any](now=None, looks=0)

    def remembered() -> Any:
        state["looks"] += 1
        return state["now"]

    async def looked() -> None:
        seen = state["looks"]
        await until(lambda: state["looks"] > seen + 1, "another look")

    saves = BrokerSaves(str(request), remembered)
    saves.look_s = 0.0
    task = asyncio.create_task(saves.run())
    await looked()
    assert not request.exists()  # the broker has not answered to the subscriptions
    for now in ("subscribed", "a document"):
        state["now"] = now
        await until(request.exists, "the request")
        request.unlink()
        await looked()
        assert not request.exists()
    task.cancel()


@in_loop
async def test_another_machines_broker_is_not_asked(tmp_path: Path) -> None:
    settings = GatewaySettings(gateway=Gateway(id="g1", data_dir=str(tmp_path)))
    assert saving(settings, cast(Any, None), cast(Any, None)) == []


@in_loop
async def test_subscriptions_sessions_and_documents_are_remembered(tmp_path: Path) -> None:
    settings = GatewaySettings(gateway=Gateway(id="g1", data_dir=str(tmp_path)), sensors=Sensors(broker_saves=True))
    subscriber = SimpleNamespace(hears=False, saved="")
    ingest, accepted = SimpleNamespace(subscriber=subscriber, sessions_lost=0), SimpleNamespace(changes=0)
    (work,) = saving(settings, cast(Any, ingest), cast(Any, accepted))
    task, request = asyncio.create_task(work), tmp_path / "broker-save.request"
    await asyncio.sleep(0)
    assert not request.exists()
    subscriber.hears = True
    await until(request.exists, "the request")
    for thing, name in ((subscriber, "saved"), (ingest, "sessions_lost"), (accepted, "changes")):
        request.unlink()
        setattr(thing, name, "changed")
        await until(request.exists, f"the request after {name}")
    task.cancel()
