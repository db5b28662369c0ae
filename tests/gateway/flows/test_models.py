"""Models that come by message: to the flows that run, to those that start later, across a restart."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import DocumentError, EdgertError
from edgert.flow.document import from_plain
from edgert.flow.graph import Flow
from edgert.flow.plan import Location
from edgert.operators.fusion.chain import Chain
from edgert.operators.models.models import Model
from edgert.operators.models.predict import Predictions
from edgert.operators.registry import REGISTRY
from edgert.runtime.flow_run import FlowRun
from gateway.flows.parts import Parts
from gateway.flows.plans import FLEET
from tests.gateway.flows.parts_here import parts_of
from tests.gateway.whole_gateway import Gateway
from tests.waiting import in_loop


def document(name: str = "f", fields: str = "t", topic: str = "x/{source}", copies: int = 1) -> Flow:
    operators: dict[str, Any] = {
        "in": {"type": "mqtt_source", "topic": topic},
        "p": {"type": "predict", "input": "in", "model": "air", "fields": fields.split(), "instances": copies},
        "minute": {"type": "tumbling_window", "input": "p", "size_s": 10, "aggregates": {"s": "sum(prediction)"}},
        "out": {"type": "ship", "input": "minute"},
    }
    return from_plain({"name": name, "operators": operators}, REGISTRY)


def model(version: int, field: str = "t") -> dict[str, Any]:
    return {"kind": "linear_regression", "version": version, "coefficients": {field: 1.0}}


def used(gateway: Gateway, flow: str = "f") -> int | None:
    places = gateway.flows.runs[flow].stages.values()
    chain = next(place.logic for place in places if "p" in place.planned.operators)
    assert isinstance(chain, Chain)
    model = chain.predictions.models.get("p")
    return model.version if model else None


@in_loop
async def test_a_model_reaches_flows_that_run_and_those_that_start_later_and_outlives_a_crash(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    assert used(gateway) is None
    assert await gateway.flows.models.offer_untrusted("air", model(3)) == ["f/p"]
    assert await gateway.flows.models.offer_untrusted("other", model(9)) == []
    gateway.feed(2, 2.0)
    assert used(gateway) == 3
    await gateway.flows.deploy(document("late"), "mqtt")
    gateway.feed(3, 3.0)
    assert used(gateway, "late") == 3
    await gateway.flows.models.forget("air")
    await gateway.flows.deploy(document("later"), "mqtt")
    gateway.feed(4, 4.0)
    assert used(gateway, "later") is None
    assert await gateway.checkpoint()
    gateway.crash()
    again = Gateway(tmp_path / "db")
    assert [used(again, name) for name in ("f", "late", "later")] == [3, 3, None]
    again.crash()


@in_loop
async def test_a_new_version_after_a_restart_goes_on_with_the_model_that_came_by_message(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "file")
    await gateway.flows.models.offer_untrusted("air", model(3))
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()
    gateway.crash()
    for version, topic in ((2, "x/{source}"), (3, "x/{source}/+")):
        gateway = Gateway(tmp_path / "db")
        assert await gateway.flows.deploy(document(topic=topic, copies=version), "file") == version
        assert await gateway.checkpoint()
        assert used(gateway) == 3
        gateway.crash()
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.models.offer_untrusted("air", model(4))
    await gateway.flows.deploy(document(), "file")
    assert await gateway.checkpoint()
    assert used(gateway) == 4, "what the broker has sent comes first"
    gateway.crash()
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.models.forget("air")
    await gateway.flows.deploy(document(copies=2), "file")
    assert await gateway.checkpoint()
    assert used(gateway) is None, "it was taken back"
    gateway.crash()


@in_loop
async def test_a_flow_that_was_removed_and_is_deployed_again_begins_without_the_model_it_had(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "file")
    await gateway.flows.models.offer_untrusted("air", model(3))
    assert await gateway.checkpoint()
    gateway.crash()
    gateway = Gateway(tmp_path / "db")
    assert await gateway.flows.remove("f")
    await gateway.flows.deploy(document(), "file")
    assert await gateway.checkpoint()
    assert used(gateway) is None
    gateway.crash()


@in_loop
async def test_a_model_that_one_operator_cannot_use_is_given_to_none(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    await gateway.flows.deploy(document("other", "h"), "mqtt")
    with pytest.raises(DocumentError, match=r"coefficients\.t: expected .*other/p"):
        await gateway.flows.models.offer_untrusted("air", model(3))
    gateway.feed(1, 1.0)
    assert (used(gateway), used(gateway, "other")) == (None, None)
    await gateway.flows.remove("other")
    assert await gateway.flows.models.offer_untrusted("air", model(4)) == ["f/p"]
    await gateway.flows.deploy(document("other", "h"), "mqtt")
    gateway.feed(2, 2.0)
    assert used(gateway, "other") is None, "refused, and said in the log"
    gateway.crash()


@in_loop
async def test_a_model_of_the_gateways_own_comes_before_one_of_the_fleet(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    assert await gateway.flows.models.offer_untrusted("air", model(1), of_fleet=True) == ["f/p"]
    gateway.feed(1, 1.0)
    assert used(gateway) == 1
    assert await gateway.flows.models.offer_untrusted("air", model(7)) == ["f/p"]
    assert await gateway.flows.models.offer_untrusted("air", model(2), of_fleet=True) == []
    gateway.feed(2, 2.0)
    assert used(gateway) == 7
    await gateway.flows.deploy(document("late"), "mqtt")
    gateway.feed(3, 3.0)
    assert used(gateway, "late") == 7
    assert await gateway.flows.models.forget("air") == ["f/p", "late/p"], "the fleet's takes its place"
    gateway.feed(4, 4.0)
    assert (used(gateway), used(gateway, "late")) == (2, 2)
    assert await gateway.flows.models.forget("air", of_fleet=True) == []
    gateway.feed(5, 5.0)
    assert used(gateway) == 2, "what is taken back stays with flows that run"
    await gateway.flows.deploy(document("later"), "mqtt")
    gateway.feed(6, 6.0)
    assert used(gateway, "later") is None
    gateway.crash()


@in_loop
async def test_a_model_whose_place_the_fleets_cannot_take_is_not_taken_back(tmp_path: Path) -> None:
    """Or flows that name one model had different ones: those that run the one taken back, later ones the fleet's."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document("both", "t h"), "mqtt")
    await gateway.flows.models.offer_untrusted("air", model(1, "h"), of_fleet=True)
    await gateway.flows.models.offer_untrusted("air", model(2))
    await gateway.flows.deploy(document("one"), "mqtt")
    with pytest.raises(DocumentError, match=r"the gateway's own stays in use\n.*coefficients\.h: expected .*\(one/p\)"):
        await gateway.flows.models.forget("air")
    await gateway.flows.deploy(document("late", "t h"), "mqtt")
    gateway.feed(1, 1.0)
    assert [used(gateway, name) for name in ("both", "one", "late")] == [2, 2, 2]
    await gateway.flows.remove("one")
    assert await gateway.flows.models.forget("air") == ["both/p", "late/p"]
    gateway.feed(2, 2.0)
    assert [used(gateway, name) for name in ("both", "late")] == [1, 1]
    gateway.crash()


@in_loop
async def test_no_more_models_are_kept_than_a_board_can_bear(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    gateway.flows.models.most = 2
    await gateway.flows.models.offer_untrusted("a", model(1))
    await gateway.flows.models.offer_untrusted("b", model(1), of_fleet=True)
    await gateway.flows.models.offer_untrusted("a", model(2), of_fleet=True)
    with pytest.raises(EdgertError, match="at most 2 models, got one more: c"):
        await gateway.flows.models.offer_untrusted("c", model(1), of_fleet=True)
    gateway.crash()


@in_loop
async def test_documents_are_bounded_together_and_one_that_is_replaced_makes_room(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    gateway.flows.models.most_bytes = 400
    await gateway.flows.models.offer_untrusted("a", {**model(1), "about": "x" * 150})
    with pytest.raises(EdgertError, match=r"at most 400 bytes of all models, got \d+ with b"):
        await gateway.flows.models.offer_untrusted("b", {**model(1), "about": "x" * 150}, of_fleet=True)
    await gateway.flows.models.offer_untrusted("a", {**model(2), "about": "x" * 250})
    await gateway.flows.models.forget("a")
    await gateway.flows.models.offer_untrusted("b", {**model(1), "about": "x" * 250}, of_fleet=True)
    gateway.crash()


@in_loop
async def test_what_is_no_model_is_refused_though_nobody_uses_it_yet(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    for wrong, path in (({"no": "model", "kind": 5}, "kind"), (model(1, "a`b"), r"coefficients\.a`b")):
        with pytest.raises(DocumentError, match=rf"{path}: expected"):
            await gateway.flows.models.offer_untrusted("typo", wrong)
    await gateway.flows.deploy(document(), "mqtt")
    await gateway.flows.models.offer_untrusted("air", model(3))
    with pytest.raises(DocumentError, match="half a surrogate pair"):
        await gateway.flows.models.offer_untrusted("air", {**model(4), "about": "\ud800"})
    gateway.feed(1, 1.0)
    assert used(gateway) == 3
    await gateway.flows.deploy(document("late"), "mqtt")
    gateway.feed(2, 2.0)
    assert used(gateway, "late") == 3, "what was refused does no harm"
    gateway.crash()


@in_loop
async def test_a_model_is_checked_beside_the_loop_and_once_for_all_copies_of_an_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    checks: list[tuple[str, bool]] = []
    checked = Predictions.checked_untrusted

    def noted(self: Predictions, operator: str, document: dict[str, Any]) -> Model:
        checks.append((operator, threading.current_thread() is threading.main_thread()))
        return checked(self, operator, document)

    monkeypatch.setattr(Predictions, "checked_untrusted", noted)
    await gateway.flows.deploy(document(copies=3), "mqtt")
    assert await gateway.flows.models.offer_untrusted("air", model(3)) == ["f/p"]
    assert checks == [("p", False)]
    await gateway.flows.deploy(document("late", copies=3), "mqtt")
    assert checks == [("p", False)] * 2
    await gateway.flows.models.offer_untrusted("air", model(4), of_fleet=True)
    await gateway.flows.models.forget("air")
    assert {on_loop for _, on_loop in checks} == {False}
    gateway.crash()


@in_loop
async def test_a_flow_that_starts_while_a_model_is_checked_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    begun, may_end = threading.Event(), threading.Event()
    checked = Predictions.checked_untrusted

    def slow(self: Predictions, operator: str, document: dict[str, Any]) -> Model:
        begun.set()
        may_end.wait(60.0)
        return checked(self, operator, document)

    monkeypatch.setattr(Predictions, "checked_untrusted", slow)
    offer = asyncio.create_task(gateway.flows.models.offer_untrusted("air", model(3)))
    assert await asyncio.to_thread(begun.wait, 60.0)
    await gateway.flows.deploy(document("late"), "file")
    may_end.set()
    assert await offer == ["f/p", "late/p"]
    gateway.feed(1, 1.0)
    assert used(gateway, "late") == 3
    gateway.crash()


AT = dict.fromkeys(document().nodes, Location("g1", -1))


async def next_plan(parts: Parts, at: dict[str, Location]) -> None:
    export = {"gateway": "g2", "since": "", "states": [], "queue": b"", "pending": b""}
    await parts.prepare(dict(document().document), at, 2, [export])
    await parts.commit("f", 2)


@in_loop
async def test_a_model_that_comes_while_the_plan_is_changed_is_not_lost(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.models.offer_untrusted("air", model(3))
    await gateway.flows.deploy(document(), FLEET, AT, 1)
    parts, _ = parts_of(gateway)
    await parts.obey("f", 2)
    await parts.stop("f")
    await gateway.flows.models.offer_untrusted("air", model(4))
    await next_plan(parts, AT)
    gateway.feed(1, 1.0)
    assert used(gateway) == 4
    gateway.crash()


@in_loop
async def test_an_operator_that_comes_from_another_board_predicts_with_the_model_that_is_here(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.models.offer_untrusted("air", model(7))
    parts, _ = parts_of(gateway)
    await parts.obey("f", 2)
    await next_plan(parts, {**AT, "in": Location("g2", -1)})
    assert await gateway.checkpoint()
    assert used(gateway) == 7
    gateway.crash()


@in_loop
async def test_a_model_that_comes_while_a_flow_is_placed_anew_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "file", AT)
    written = gateway.checkpointer.write_stopped

    async def comes(run: FlowRun) -> None:
        await written(run)
        await gateway.flows.models.offer_untrusted("air", model(4))

    monkeypatch.setattr(gateway.checkpointer, "write_stopped", comes)
    await gateway.flows.plans.place("f", {"p": Location("g1", 1)})
    gateway.feed(1, 1.0)
    assert used(gateway) == 4
    gateway.crash()
