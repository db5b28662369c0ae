"""A card that rots until the database is none: the gateway begins another with the flows of the old one."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration import truth
from tests.integration.rig import Rig

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("also", [b"", b'{"ids"'])
def test_its_flows_go_on_and_what_comes_from_then_on_is_counted_once(also: bytes, rig: Rig) -> None:
    """`also` damaged: under which identifiers the broker sends."""
    before, after = truth.packs()[:200], truth.shifted(truth.packs()[200:400], 7 * 86_400)
    gateway, collector = rig.gateway(), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document("f", size_s=1.0, interval_s=0.2))["accepted"]
    rig.publish(truth.as_messages(before))
    gateway.wait(lambda s: s["ingest"]["messages"] >= 200 and not s["ingest"]["unacknowledged"], "200 messages")
    another_source = truth.document("f", size_s=1.0, interval_s=0.2, idle_timeout_s=29.0)
    assert rig.deploy(gateway, another_source)["accepted"]  # keeps no state: what was open is shipped
    rig.drained(gateway)
    landed = rig.counts("f")
    assert landed
    assert gateway.terminate() == 0
    path = gateway.data / "gateway.db"
    raw = path.read_bytes()
    raw = raw.replace(b"CREATE TABLE opening", b"\xff" * 20)
    path.write_bytes(raw.replace(also, b"?" * len(also)) if also else raw)
    rig.publish(truth.as_messages(after))
    gateway.start_ready()
    status = gateway.wait(lambda s: s["flows"], "its flows")
    (flow,) = status["flows"]
    assert (flow["name"], flow["state"]) == ("f", "running")
    assert "is damaged" in flow["gap"]
    rig.finish(gateway, "f", 200)
    wanted = Counter({key: row["n"] for key, row in truth.expected(after, 1.0).items()})
    assert rig.counts("f") == landed | wanted, "what had landed stays"
    assert any("is damaged" in row["text"] for row in rig.table("gaps"))
