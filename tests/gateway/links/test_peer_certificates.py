"""Certificates of linked gateways: revoked ones, and those that have expired."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edgert.boards import files
from edgert.boards.authority import Authority as FleetCa
from edgert.boards.authority import create
from edgert.links.tls import Credentials
from tests.gateway.links.linked_boards import AB, Board, Database, linked
from tests.links.certificates import FLEET, Authority
from tests.waiting import in_loop, until


@pytest.mark.parametrize("revoked", ["a", "b"])
@in_loop
async def test_a_list_of_revoked_certificates_counts_when_its_file_is_replaced(revoked: str, tmp_path: Path) -> None:
    """The link ends; that of a board which is not revoked comes back, and what waited goes over it."""
    now = datetime.now(UTC)
    create(tmp_path / "ca", FLEET, now)
    authority = FleetCa(tmp_path / "ca")
    credentials = {name: issued(authority, name, tmp_path / name, now) for name in ("a", "b")}
    authority.board("c", now, timedelta(days=1))
    one, two = Database(), Database()
    a, b = Board("a", one, credentials["a"]), Board("b", two, credentials["b"])
    one.put(AB, b"1")
    await linked(a, b)
    await a.peers.open_outgoing("f", "b")
    await b.peers.open_incoming("f", "a")
    await until(lambda: b.bodies == [b"1"], "a batch")
    before = b.peers.peer("a").link
    authority.revoke("c", now)
    spread(authority, credentials)
    await until(lambda: b.peers.peer("a").link not in (None, before), "another link")
    authority.revoke(revoked, now)
    spread(authority, credentials)
    side = a if revoked == "b" else b
    await until(lambda: "revoked" in side.peers.status()["last_refusal"] + side.peers.peer("b").error, "the reason")
    # with TLS 1.3 a client learns only after its handshake that it is refused
    await until(lambda: a.peers.peer("b").link is b.peers.peer("a").link is None, "the end of both sides")
    a.peers.stored("f", "b", one.put(AB, b"2"))
    tries = b.peers.status()["refused_connections"]
    await until(lambda: b.peers.status()["refused_connections"] > tries + 1, "two more attempts")
    assert b.bodies == [b"1"]
    assert len(one.outbox[AB]) == 2
    await a.peers.stop()
    await b.peers.stop()


@in_loop
async def test_a_renewed_certificate_is_shown_by_new_links(tmp_path: Path) -> None:
    """The old one is not used any more: it is revoked, and a link is made even so. Key and certificate come apart."""
    now = datetime.now(UTC)
    create(tmp_path / "ca", FLEET, now)
    authority = FleetCa(tmp_path / "ca")
    credentials = {name: issued(authority, name, tmp_path / name, now) for name in ("a", "b")}
    old = authority.board("c", now, timedelta(days=1))
    for file, content in ((credentials["a"].certificate, old.certificate), (credentials["a"].key, old.key)):
        files.write(Path(file), content)
    a, b = Board("a", Database(), credentials["a"]), Board("b", Database(), credentials["b"])
    await linked(a, b)
    await until(lambda: "certificate" in b.peers.status()["last_refusal"], "a refusal: c is not a")
    made = authority.board("a", now, timedelta(days=1))
    files.write(Path(credentials["a"].certificate), made.certificate)
    seen = b.peers.status()["refused_connections"]
    await until(lambda: b.peers.status()["refused_connections"] > seen + 1, "attempts with the key of another")
    files.write(Path(credentials["a"].key), made.key)
    await until(lambda: b.peers.peer("a").link is not None, "a link")
    await a.peers.stop()
    await b.peers.stop()


def issued(authority: FleetCa, name: str, folder: Path, now: datetime) -> Credentials:
    made = authority.board(name, now, timedelta(days=1))
    folder.mkdir()
    contents = {"pem": made.certificate, "key": made.key, "ca": authority.root_pem, "crl": authority.crl_pem}
    for file, content in contents.items():
        files.write(folder / file, content)
    return Credentials(*(str(folder / file) for file in contents))


def spread(authority: FleetCa, credentials: dict[str, Credentials]) -> None:
    for one in credentials.values():
        files.write(Path(one.crl), authority.crl_pem)


@pytest.mark.parametrize("expired", ["a", "b"])
@in_loop
async def test_a_certificate_that_has_expired_makes_no_link_and_the_status_says_why(
    expired: str, tmp_path: Path
) -> None:
    """`a` calls `b`. A certificate is refused by the other side; the owner's status says so, too."""
    authority, one = Authority(tmp_path / "ca"), Database()
    credentials = {name: authority.issue(name) for name in ("a", "b")}
    authority.expire(credentials[expired])
    a, b = Board("a", one, credentials["a"]), Board("b", Database(), credentials["b"])
    one.put(AB, b"1")
    await linked(a, b)
    await a.peers.open_outgoing("f", "b")
    await b.peers.open_incoming("f", "a")
    await until(lambda: "certificate has expired" in a.peers.status()["peers"][0]["error"], "the caller's reason")
    (of_b,) = a.peers.status()["peers"]
    assert not of_b["connected"]
    assert ("others refuse our certificate" in of_b["error"]) is (expired == "a")
    await until(lambda: b.peers.status()["last_refusal"], "the refusal")
    assert ("certificate has expired" in b.peers.status()["last_refusal"]) is (expired == "a")
    assert b.peers.status()["refused_connections"] > 0
    assert b.bodies == []
    assert len(one.outbox[AB]) == 1
    await a.peers.stop()
    await b.peers.stop()
    renewed = authority.issue(expired)
    a, b = (Board(name, one if name == "a" else Database(), {**credentials, expired: renewed}[name]) for name in "ab")
    await linked(a, b)
    await a.peers.open_outgoing("f", "b")
    await b.peers.open_incoming("f", "a")
    await until(lambda: b.bodies == [b"1"], "the batch, by a new certificate")
    await a.peers.stop()
    await b.peers.stop()
