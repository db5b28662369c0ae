"""A board gets its identity for a one-time token, over TLS on loopback."""

from __future__ import annotations

import json
import os
import shutil
import threading
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from edgert.boards.certificates import new_key
from edgert.boards.signing_requests import CA, ENROL, signing_request
from edgert.cli.main import main
from edgert.core.config import load
from edgert.core.errors import DocumentError, EdgertError
from edgert.core.settings.gateway import GatewaySettings
from provisioning import enrolment, on_board
from provisioning.document import files_untrusted
from provisioning.enrolment import REFUSED, enrol, identity_untrusted, pinned_untrusted
from provisioning.on_board import take_untrusted
from provisioning.renewal import Refused, ask_untrusted, renew
from tests.provisioning.signing_world import NOW, SigningWorld, pair

COMMON = '[central]\nhost = "broker.example"\n[network]\naddress = "192.168.1.20/24"\n'


class EnrolmentWorld(SigningWorld):
    """And cards with tokens."""

    def card(self, name: str, *arguments: str) -> Path:
        """The FAT partition of a card."""
        out, common = self.folder / "cards", self.folder / "common.toml"
        common.write_text(COMMON)
        options = ["--ca", self.ca, "--out", out, "--url", self.url, "--common", common]
        assert main(["fleet", "token", name, *map(str, options), *arguments]) == 0
        return out / name

    def booted(self, name: str, card: Path | None = None) -> Path:
        """A board that has taken its card's file."""
        stored = self.folder / f"{name}-stored{len(list(self.folder.iterdir()))}"
        assert take_untrusted(card or self.card(name), stored)
        return stored

    def tokens(self, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["fleet", "tokens", "--ca", str(self.ca), "--json"]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["tokens"]
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnrolmentWorld]:
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    world = EnrolmentWorld(tmp_path)
    with world.serving():
        yield world


def test_a_board_gets_its_identity_for_its_token(world: EnrolmentWorld, capsys: pytest.CaptureFixture[str]) -> None:
    card = world.card("g1")
    text = (card / "edgert.toml").read_text()
    assert "PRIVATE KEY" not in text
    token = tomllib.loads(text)["enrolment"]["token"]
    assert all(token not in path.read_text() for path in world.ca.rglob("*") if path.is_file())  # the hash alone
    stored = world.booted("g1", card)
    assert not (card / "edgert.toml").exists()
    before = load(GatewaySettings, stored / "gateway.toml", {})
    assert not before.central.enabled  # without TLS it would be
    assert (stored / "enrolment/request.toml").stat().st_mode & 0o777 == 0o600
    assert world.tokens(capsys)[0]["state"] == "waits"
    assert "has its identity" in enrol(stored)
    certificate, whole = pair(stored)
    assert whole
    assert world.authority().certificates("g1") == [certificate]
    after = load(GatewaySettings, stored / "gateway.toml", {})
    assert (after.gateway.id, after.gateway.fleet) == ("g1", "farm")
    assert (after.central.enabled, after.central.host, after.central.tls) == (True, "broker.example", True)
    assert after.central.key_file == after.links.key == "/var/edgert/identity/board.key"
    authority = world.authority()
    assert (stored / "identity/mac.key").read_text() == authority.mac_key("g1")
    assert (stored / "identity/fleet.key").read_text() == authority.fleet_key
    assert (stored / "identity/ca.pem").read_bytes() == authority.root_pem
    assert (stored / "identity/crl.pem").read_bytes() == authority.crl_pem
    assert [path.name for path in (stored / "enrolment").iterdir()] == ["url"]
    assert all(token not in path.read_text() for path in stored.rglob("*") if path.is_file())
    assert world.tokens(capsys) == [
        {"name": "g1", "ends": world.tokens(capsys)[0]["ends"], "refused": 0, "state": "used"}
    ]
    assert "is valid until" in renew(stored, NOW)  # and is renewed later


def test_a_second_use_is_refused_counted_and_told(world: EnrolmentWorld, capsys: pytest.CaptureFixture[str]) -> None:
    card = world.card("g1")
    copy = shutil.copytree(card, world.folder / "copy")
    enrol(world.booted("g1", card))
    thief = world.booted("thief", copy)
    with pytest.raises(Refused, match=r"403.*the token of g1 was used before.*revoke g1"):
        enrol(thief)
    assert "used before" in world.said[-1]
    assert (world.tokens(capsys)[0]["refused"], world.service.refused) == (1, 1)
    assert len(world.authority().certificates("g1")) == 1
    assert not (thief / "identity").exists()


def test_two_at_once_with_one_token_make_one_board(world: EnrolmentWorld) -> None:
    card = world.card("g1")
    boards = [world.booted(f"b{n}", shutil.copytree(card, world.folder / f"copy{n}")) for n in range(4)]
    together, outcomes = threading.Barrier(len(boards)), []

    def board(stored: Path) -> None:
        together.wait()
        try:
            outcomes.append(enrol(stored))
        except EdgertError as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=board, args=(stored,)) for stored in boards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["Refused"] * 3 + ["the board has its identity, and its token is wiped"]
    assert len(world.authority().certificates("g1")) == 1


def test_an_expired_token_or_one_of_another_name_or_fleet_is_refused(
    world: EnrolmentWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    late = world.booted("g1", world.card("g1", "--hours", "1"))
    world.service.wall = lambda: NOW + timedelta(hours=2)
    with pytest.raises(Refused, match="the token of g1 ended at"):
        enrol(late)
    world.service.wall = lambda: NOW
    other = world.card("g2")
    (other / "edgert.toml").write_text((other / "edgert.toml").read_text().replace('"g2"', '"g3"'))
    with pytest.raises(Refused, match="the token of g2 was shown for g3"):
        enrol(world.booted("g2", other))
    unknown = world.card("g4")
    shutil.rmtree(world.ca / "tokens")
    with pytest.raises(Refused, match="expected a token of this fleet"):
        enrol(world.booted("g4", unknown))
    assert world.service.refused == 3
    assert not list((world.ca / "issued").glob("g*"))


def test_a_revoked_name_gets_no_token_and_no_identity(world: EnrolmentWorld) -> None:
    stored = world.booted("g1")
    world.authority().board("g1", NOW, timedelta(days=1))
    world.authority().revoke("g1", NOW)
    with pytest.raises(Refused, match="never revoked"):
        enrol(stored)
    assert main(["fleet", "token", "g1", "--ca", str(world.ca), "--out", "x", "--url", world.url]) == 1


def test_a_damaged_record_of_a_token_is_told_to_the_owner_and_its_path_to_no_board(world: EnrolmentWorld) -> None:
    stored = world.booted("g1")
    (record,) = (world.ca / "tokens").glob("*.json")
    record.write_text("{")
    with pytest.raises(EdgertError) as caught:
        enrol(stored)
    assert str(world.ca) not in str(caught.value)
    assert "the CA cannot be used now" in str(caught.value)
    assert [text for text in world.said if str(record) in text]


def test_a_service_of_another_ca_gets_no_token(world: EnrolmentWorld, tmp_path: Path) -> None:
    stored = world.booted("g1")
    (tmp_path / "other").mkdir()
    other = EnrolmentWorld(tmp_path / "other")
    with other.serving():
        request = stored / "enrolment/request.toml"
        request.write_text(request.read_text().replace(world.url, other.url))
        with pytest.raises(EdgertError, match="no token is sent"):
            enrol(stored)
    assert other.said == []
    assert other.service.refused == 0


class Cut(BaseException):
    """The power goes."""


@pytest.mark.parametrize("at", ["answer", "complete", "stored", "wiped"])
def test_wherever_the_power_goes_the_board_has_its_identity_in_the_end(
    world: EnrolmentWorld, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    stored = world.booted("g1")
    real_store, real_wipe = on_board.store, on_board._wipe

    def ask(url: str, path: str, *others: Any) -> bytes:
        answer = ask_untrusted(url, path, *others)
        if path == ENROL:
            raise Cut
        return answer

    def store(*arguments: Any) -> None:
        if at == "stored":
            real_store(*arguments)
        raise Cut

    def wipe(path: Path) -> None:
        if path.name == "complete.toml":
            raise Cut
        real_wipe(path)

    with monkeypatch.context() as patched:
        if at == "answer":
            patched.setattr(enrolment, "ask_untrusted", ask)
        elif at == "wiped":
            patched.setattr(on_board, "_wipe", wipe)
        else:
            patched.setattr(enrolment, "store", store)
        with pytest.raises(Cut):
            enrol(stored)
    if at == "stored":  # it was at its end
        assert not (stored / "enrolment/complete.toml").exists()
    else:
        world.service.wall = lambda: NOW + timedelta(hours=1)
        assert "has its identity" in enrol(stored)
    assert pair(stored)[1]
    assert [path.name for path in (stored / "enrolment").iterdir()] == ["url"]
    assert len(world.authority().certificates("g1")) == 1


def test_a_new_provisioning_file_ends_what_waits(world: EnrolmentWorld) -> None:
    stored = world.booted("g1")
    with pytest.raises(EdgertError):
        enrol(stored / "none")
    boot = world.folder / "boot"
    boot.mkdir()
    (boot / "edgert.toml").write_text('[gateway]\nid = "g1"\n')
    assert take_untrusted(boot, stored)
    assert list((stored / "enrolment").iterdir()) == []


def test_the_program_tells_what_another_attempt_may_mend(
    world: EnrolmentWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    card = world.card("g1")
    copy = shutil.copytree(card, world.folder / "copy")
    monkeypatch.setattr(enrolment, "STORED", world.booted("g1", card))
    with monkeypatch.context() as patched:
        patched.setattr(enrolment, "CA", "/v1/none")
        assert enrolment.main() == 1
    assert enrolment.main() == 0
    monkeypatch.setattr(enrolment, "STORED", world.booted("thief", copy))
    assert enrolment.main() == REFUSED
    assert "used before" in capsys.readouterr().err


def test_bodies_that_are_none(world: EnrolmentWorld) -> None:
    root = (world.ca / "root.pem").read_bytes()
    token = tomllib.loads((world.card("g1") / "edgert.toml").read_text())["enrolment"]["token"]
    request = signing_request("farm", "g1", new_key()).decode()
    for body in (
        b"", b"\xff" * 100, b"[" * 9000, b"{}", b'{"token": 1, "request": []}',
        json.dumps({"token": token[:-1], "request": request}).encode(),
        json.dumps({"token": "../" + token[3:], "request": request}).encode(),
        json.dumps({"token": token, "request": "x"}).encode(),
        json.dumps({"token": token, "request": request + "x" * 10_000}).encode(),
    ):  # fmt: skip
        with pytest.raises(Refused):
            ask_untrusted(world.url, ENROL, body, root)
    assert ask_untrusted(world.url, CA, b"", root) == root
    assert json.loads(ask_untrusted(world.url, ENROL, json.dumps({"token": token, "request": request}).encode(), root))


def test_what_a_board_takes_for_an_identity(world: EnrolmentWorld) -> None:
    key, authority = new_key(), world.authority()
    answer = dict.fromkeys(enrolment.GIVEN, "") | {
        "certificate": authority.signed("g1", key.public_key(), NOW, timedelta(days=9)).decode()
    }
    assert set(identity_untrusted(json.dumps(answer).encode(), key)) == {*enrolment.GIVEN, "key"}
    for wrong in (b"", b"[]", b"[" * 9000, b'{"certificate": 1}', json.dumps(answer | {"certificate": "x"}).encode()):
        with pytest.raises(EdgertError):
            identity_untrusted(wrong, key)
    with pytest.raises(EdgertError, match="for this board's key"):
        identity_untrusted(json.dumps(answer).encode(), new_key())
    for wrong in (b"", b"\xff", authority.crl_pem):
        with pytest.raises(EdgertError, match="certificate of the fleet's CA"):
            pinned_untrusted(wrong, "0" * 64)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", "url and enrolment.ca_sha256 beside"),
        ('url = "https://h"', "url and enrolment.ca_sha256 beside"),
        ('url = "http://h"\nca_sha256 = "x"', "64 hexadecimal digits"),
    ],
)
def test_a_token_alone_is_a_fault_of_the_file(settings: str, expected: str) -> None:
    with pytest.raises(DocumentError, match=expected):
        files_untrusted(f'[enrolment]\ntoken = "{"a" * 43}"\n{settings}\n')


def test_the_commands_say_what_is_wrong(world: EnrolmentWorld, capsys: pytest.CaptureFixture[str]) -> None:
    def token(*arguments: str) -> str:
        capsys.readouterr()
        assert main(["fleet", "token", *arguments, "--ca", str(world.ca), "--out", str(world.folder / "x")]) == 1
        return capsys.readouterr().err

    assert "--url" in token("g1")
    assert "https://HOST" in token("g1", "--url", "ftp://x")
    assert "--hours" in token("g1", "--url", world.url, "--hours", "0")
    assert "a letter or digit first" in token("a b", "--url", world.url)
    assert main(["fleet", "tokens", "--ca", str(world.ca)]) == 0
    world.card("g7")
    capsys.readouterr()
    assert main(["fleet", "tokens", "--ca", str(world.ca)]) == 0
    assert "g7     waits" in capsys.readouterr().out
