"""What the table says reaches the broker, retained; what a broker refuses is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from edgert.central.tables import models
from edgert.central.tables.lease import LeaseLost, TableLease
from edgert.central.tables.models import ModelRegistry
from edgert.central.training.publication import NotPublished, Publication, changing
from edgert.core.errors import EdgertError
from edgert.core.settings.connection import Connection
from tests.brokers import Broker, Certificates
from tests.central.worlds import WHEN, kept, version

pytestmark = pytest.mark.integration


def publish(root: Path, publication: Publication) -> list[str]:
    with changing(str(root), "air") as lease:
        return publication.publish(ModelRegistry(str(root)), "air", lease)


def test_the_published_version_stands_where_its_gateways_look(mosquitto: Callable[..., Broker], tmp_path: Path) -> None:
    broker, registry = mosquitto(), ModelRegistry(str(tmp_path))
    publication = Publication(Connection(port=broker.port), "f")
    publication.start()
    publication.wait()
    assert publish(tmp_path, publication) == []
    registry.add("air", lambda known: version(1))
    assert publish(tmp_path, publication) == ["edgert/v1/f/@models/air"]
    registry.add("air", lambda known: replace(version(2), gateways="g1,g2"))
    registry.add("air", lambda known: version(3, models.REJECTED))
    publish(tmp_path, publication)
    found = kept(broker, "edgert/v1/#")
    assert {topic: json.loads(payload)["version"] for topic, payload in found.items()} == {
        "edgert/v1/f/g1/models/air": 2, "edgert/v1/f/g2/models/air": 2
    }  # fmt: skip
    registry.roll_back("air", None, WHEN)
    publish(tmp_path, publication)
    assert kept(broker, "edgert/v1/#") == {"edgert/v1/f/@models/air": b'{"version": 1}'}
    publication.close()


def test_a_broker_that_forbids_it_says_so(mosquitto: Callable[..., Broker], tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic read #\n")
    rules.chmod(0o700)
    broker = mosquitto(settings=f"acl_file {rules}")
    ModelRegistry(str(tmp_path)).add("air", lambda known: version(1))
    publication = Publication(Connection(port=broker.port), "f")
    publication.start()
    publication.wait()
    with pytest.raises(
        NotPublished, match=r"@models/air: the broker refused: Not authorized.*edgert central rollback air"
    ):
        publish(tmp_path, publication)
    publication.close()


def test_a_topic_that_the_broker_refuses_keeps_no_other_gateway_from_its_model(
    mosquitto: Callable[..., Broker], tmp_path: Path
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic read #\ntopic end\ntopic edgert/v1/f/g2/#\ntopic edgert/v1/f/g4/#\n")
    rules.chmod(0o700)
    broker = mosquitto(settings=f"acl_file {rules}")
    ModelRegistry(str(tmp_path)).add("air", lambda known: replace(version(1), gateways="g1,g2,g3,g4"))
    publication = Publication(Connection(port=broker.port), "f")
    publication.start()
    publication.wait()
    with pytest.raises(NotPublished, match=r"g1/models/air: the broker refused: Not authorized and 1 more"):
        publish(tmp_path, publication)
    assert kept(broker, "edgert/v1/#").keys() == {f"edgert/v1/f/{name}/models/air" for name in ("g2", "g4")}
    publication.close()


def test_over_tls_with_a_password(mosquitto: Callable[..., Broker], certificates: Certificates, tmp_path: Path) -> None:
    broker = mosquitto(users={"central": "geheim"}, certificates=certificates)
    password = tmp_path / "password"
    password.write_text("geheim\n")
    settings = Connection(
        port=broker.port, tls=True, ca_file=certificates.path("ca.crt"), username="central", password_file=str(password)
    )
    ModelRegistry(str(tmp_path)).add("air", lambda known: version(1))
    publication = Publication(settings, "f")
    publication.start()
    publication.wait()
    assert publish(tmp_path, publication) == ["edgert/v1/f/@models/air"]
    publication.close()
    stranger = Publication(replace(settings, username="nobody"), "f")
    stranger.start()
    with pytest.raises(EdgertError, match="refused"):
        stranger.wait()
    stranger.close()


def test_no_broker_is_said_at_once() -> None:
    publication = Publication(Connection(port=free_port()), "f")
    publication.start()
    with pytest.raises(EdgertError, match="no connection to"):
        publication.wait()
    publication.close()


def test_only_one_at_a_time_changes_a_model(tmp_path: Path) -> None:
    with changing(str(tmp_path), "air") as lease, changing(str(tmp_path), "water"):
        with pytest.raises(LeaseLost), changing(str(tmp_path), "air", patience_s=0):
            pass
        lease.hold()
    TableLease(str(tmp_path), "model air", "somebody").acquire()
