"""Which settings a `config` message may change on a gateway that is put together, but not started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import DocumentError
from edgert.core.settings.gateway import Gateway, GatewaySettings, Pool
from gateway.control.live_settings import apply_settings
from gateway.daemon import Daemon
from gateway.hosts.in_process import InProcess
from tests.waiting import in_loop


def daemon(folder: Path, consumption: str = "at-most") -> Daemon:
    return Daemon(GatewaySettings(gateway=Gateway(id="g1", data_dir=str(folder)), pool=Pool(consumption=consumption)))


async def applied(made: Daemon, document: Mapping[str, Any]) -> Mapping[str, Any]:
    return await apply_settings(document, made.settings.pool.consumption, made.host)


def consumed(made: Daemon) -> int:
    """Rows that an instance takes of 1,000."""
    assert isinstance(made.host, InProcess)
    return made.host.pool.consumption(1_000)


@in_loop
async def test_the_number_of_rows_per_turn_may_change_while_running(tmp_path: Path) -> None:
    made = daemon(tmp_path)
    assert await applied(made, {"pool": {"consumption_rows": 7}}) == {"applied": ["pool.consumption_rows"]}
    assert consumed(made) == 7


@pytest.mark.parametrize(("consumption", "rows"), [("half", 500), ("all", 1_000)])
def test_a_number_of_rows_that_nothing_goes_by_is_refused(consumption: str, rows: int, tmp_path: Path) -> None:
    @in_loop
    async def run() -> None:
        made = daemon(tmp_path, consumption)
        with pytest.raises(DocumentError, match=f"pool.consumption is {consumption} .*only at-most") as refused:
            await applied(made, {"pool": {"consumption_rows": 7}, "log": {"level": "error"}})
        assert [p.path for p in refused.value.problems] == ["pool.consumption_rows"]
        assert consumed(made) == rows
        assert await applied(made, {"log": {"level": "warning"}}) == {"applied": ["log.level"]}

    run()


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({"sensors": {"host": "x", "tls": 1}, "pool": {"slots": 9}}, ["pool.slots", "sensors.host", "sensors.tls"]),
        ({"pool": {"consumption_rows": 0}}, ["pool.consumption_rows"]),
        ({"pool": {"consumption_rows": "many"}}, ["pool.consumption_rows"]),
        ({"pool": {"consumption_rows": None}}, ["document"]),
        ({"pool": 5}, ["pool"]),
        ({"nonsense": {"x": 1}}, ["nonsense.x"]),
    ],
)  # fmt: skip
def test_what_could_cut_the_board_off_or_is_wrong_is_refused_with_every_path(
    document: dict[str, Any], paths: list[str], tmp_path: Path
) -> None:
    @in_loop
    async def run() -> None:
        made = daemon(tmp_path)
        before = consumed(made)
        with pytest.raises(DocumentError) as refused:
            await applied(made, document)
        assert sorted(p.path for p in refused.value.problems) == paths
        assert consumed(made) == before

    run()


@in_loop
async def test_control_messages_that_cannot_be_handled_or_do_not_fit_are_counted_and_shown(tmp_path: Path) -> None:
    made = daemon(tmp_path)
    made.central._on_loop = lambda call: call()  # type: ignore[method-assign]

    async def fail(topic: str, payload: bytes, request: object) -> None:
        raise ValueError("no")

    for _ in range(1_002):
        made.central.message_untrusted(f"{made.mqtt_api.base}/cmd/checkpoint", b"{}", None)
    serving = asyncio.create_task(made.central.serve(made.central.commands, fail))
    for _ in range(2_000):
        await asyncio.sleep(0)
    assert made.central.commands.empty()
    serving.cancel()
    assert [(drop["reason"], drop["rows"]) for drop in made.status._drops()] == [
        ("control message that could not be handled", 1_000),
        ("too many control messages", 2),
    ]
