"""What the status says of the gateway's own certificate."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edgert.boards import files
from edgert.boards.authority import Authority, create
from edgert.core.settings.gateway import GatewaySettings
from gateway.status.own_certificate import AGAIN_S, OwnCertificate

NOW = datetime.now(UTC).replace(microsecond=0)
LIFE = timedelta(days=90)


class World:
    def __init__(self, folder: Path) -> None:
        create(folder / "ca", "farm", NOW)
        self.authority = Authority(folder / "ca")
        self.certificate, self.key, self.renewal = folder / "board.pem", folder / "board.key", folder / "state.json"
        self.at = NOW.timestamp()
        settings = GatewaySettings()
        self.settings = replace(
            settings, links=replace(settings.links, certificate=str(self.certificate), key=str(self.key))
        )
        self.own = OwnCertificate(self.settings, str(self.renewal), lambda: self.at)

    def make(self, made: datetime) -> None:
        issued = self.authority.board("g1", made, LIFE)
        files.write(self.key, issued.key)
        files.write(self.certificate, issued.certificate)

    def told(self, name: str) -> object:
        section = self.own.section()
        assert section is not None
        return section[name]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_end_of_the_certificate_and_of_a_renewed_one(world: World) -> None:
    world.make(NOW - timedelta(days=80))
    assert (world.told("left_s"), world.told("life_s")) == (10 * 86_400, 91 * 86_400)
    assert world.told("ends") == (NOW + timedelta(days=10)).isoformat()
    world.make(NOW)
    assert (world.told("left_s"), world.told("error")) == (90 * 86_400, "")
    world.at += 91 * 86_400
    assert world.told("left_s") == -86_400


def test_an_expired_certificate_or_none_is_told(world: World) -> None:
    world.make(NOW - 2 * LIFE)
    assert (world.told("left_s"), world.told("error")) == (None, "certificate has expired")
    world.certificate.unlink()
    assert "No such file" in str(world.told("error"))
    world.make(NOW)
    assert world.told("error") == ""


def test_a_fault_is_looked_at_again(world: World) -> None:
    """The key of another certificate, whose own comes later."""
    world.make(NOW)
    key = world.key.read_bytes()
    world.make(NOW)
    other = world.key.read_bytes()
    files.write(world.key, key)
    assert "KEY_VALUES_MISMATCH" in str(world.told("error"))
    files.write(world.key, other)
    world.at += AGAIN_S
    assert world.told("error") == ""


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b'{"error": "no answer"}', "no answer"), (b"", ""), (b"[]", ""), (b"\xff", ""), (b'{"error": 1}', "")],
)
def test_a_failed_renewal_is_told(world: World, content: bytes, expected: str) -> None:
    world.make(NOW)
    assert world.told("renewal_error") == ""
    world.renewal.write_bytes(content)
    assert world.told("renewal_error") == expected


def test_the_certificate_for_the_central_broker_counts_where_links_have_none(world: World) -> None:
    world.make(NOW)
    settings = GatewaySettings()
    central = replace(settings.central, cert_file=str(world.certificate), key_file=str(world.key))
    own = OwnCertificate(replace(settings, central=central), "", lambda: world.at)
    assert (own.section() or {})["left_s"] == 90 * 86_400
    assert OwnCertificate(settings).section() is None
