"""A flow in copies, on a gateway that is killed and comes back with `pool.fission` the other way round."""

from __future__ import annotations

import pytest

from tests.integration import truth
from tests.integration.rig import Gateway, Rig

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]
COPIES = {"readings": 2, "valid": 3, "window": 2, "central": 2}


def operators(gateway: Gateway) -> set[str]:
    """As the page shows them."""
    status = gateway.wait(lambda s: s["flows"], "the flow")
    return {operator["name"] for operator in status["flows"][0]["operators"]}


def test_the_fleet_table_is_right_whatever_the_setting_is_when_the_gateway_comes_back(rig: Rig) -> None:
    base = truth.packs()
    packs = [p for n in range(4) for p in truth.shifted(base, 120 * n)]
    document = truth.document(interval_s=0.2)
    for operator, copies in COPIES.items():
        document["operators"][operator]["instances"] = copies
    gateway, collector = rig.gateway(pool={"fission": True}), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, document)["accepted"]
    assert operators(gateway) >= {"readings#2", "valid+by-sensor#3"}
    publisher = rig.publishing(truth.as_messages(packs), rate=600.0)
    config = rig.folder / "g1.toml"
    for fission in (False, True, False):
        seen = gateway.wait(lambda s: s["ingest"]["connected"], "the connection")["ingest"]["messages"]
        gateway.wait(lambda s, seen=seen: s["ingest"]["messages"] > seen + 500 or not publisher.is_alive(), "input")  # type: ignore[misc]
        assert publisher.is_alive(), "the kills were to come in mid-stream"
        gateway.kill()
        before = config.read_text()
        config.write_text(before.replace(f"fission = {str(not fission).lower()}", f"fission = {str(fission).lower()}"))
        assert config.read_text() != before
        gateway.start_ready()
        assert "window#2" in operators(gateway)
    publisher.join()
    gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
    rig.finish(gateway, "city-air", 0)
    rig.run_fleet_job()
    truth.assert_equal(rig.table("fleet/city-air"), truth.expected(packs))
