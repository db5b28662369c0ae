"""A board has its certificate renewed by the fleet's service, over TLS on loopback."""

from __future__ import annotations

import json
import os
import shutil
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from edgert.boards import files
from edgert.boards.certificates import new_key
from edgert.core.errors import EdgertError
from provisioning import renewal
from provisioning.on_board import take_untrusted
from provisioning.renewal import checked_untrusted, renew, swap
from tests.provisioning.signing_world import HOST, LIFE, NOW, SigningWorld, pair


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SigningWorld]:
    world = SigningWorld(tmp_path)
    with world.serving():
        yield world


def test_a_certificate_is_renewed_in_the_last_third_of_its_life_and_the_key_is_new(world: SigningWorld) -> None:
    stored = world.board("g1")
    first, _ = pair(stored)
    world.service.life, world.service.wall = timedelta(days=20), lambda: NOW - timedelta(days=9)
    assert "a new certificate" in renew(stored, NOW)
    second, whole = pair(stored)
    assert whole
    assert first.not_valid_after_utc < second.not_valid_after_utc
    assert "is valid until" in renew(stored, NOW)  # nothing is due
    world.service.life, world.service.wall = LIFE, lambda: NOW
    assert "a new certificate" in renew(stored, NOW + timedelta(days=5))
    third, whole = pair(stored)
    assert whole
    assert len({one.public_key().public_numbers() for one in (first, second, third)}) == 3  # type: ignore[union-attr]
    assert len(list((stored / "identity/renewed").iterdir())) == 2  # the link and its folder: no old key stays
    assert len(world.authority().certificates("g1")) == 3  # so that all can be revoked
    assert world.authority().revoke("g1", NOW) == 3


def test_nothing_is_asked_before_the_last_third_or_without_a_service(world: SigningWorld) -> None:
    stored = world.board("g1", NOW)
    assert "is valid until" in renew(stored, NOW + LIFE / 2)
    (stored / "enrolment/url").unlink()
    assert "no renewal" in renew(stored, NOW + LIFE * 0.9)
    assert "no renewal" in renew(world.folder / "none", NOW)
    assert world.said == []


def test_an_answer_that_was_lost_costs_no_second_certificate(
    world: SigningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = world.board("g1")
    real = renewal.ask_untrusted

    def lost(*arguments: Any) -> bytes:
        real(*arguments)
        raise EdgertError("no answer")

    monkeypatch.setattr(renewal, "ask_untrusted", lost)
    for _ in range(2):
        with pytest.raises(EdgertError, match="no answer"):
            renew(stored, NOW)
    monkeypatch.setattr(renewal, "ask_untrusted", real)
    renew(stored, NOW)
    assert pair(stored)[1]
    assert len(world.authority().certificates("g1")) == 2


def test_a_revoked_board_is_refused_and_keeps_what_it_has(world: SigningWorld) -> None:
    stored = world.board("g1")
    before = pair(stored)
    world.authority().revoke("g1", NOW)
    with pytest.raises(EdgertError, match=r"403.*never revoked"):
        renew(stored, NOW)
    assert pair(stored) == before
    assert len(world.authority().certificates("g1")) == 1
    assert "refused (1 in all)" in world.said[-1]


def test_a_ca_in_use_is_tried_again_later(world: SigningWorld) -> None:
    stored = world.board("g1")
    with files.locked(world.ca), pytest.raises(EdgertError, match="503"):
        renew(stored, NOW)
    assert "a new certificate" in renew(stored, NOW)


def test_the_outcome_is_told_to_the_gateway(
    world: SigningWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = world.board("g1")
    monkeypatch.setattr(renewal, "STORED", stored)
    monkeypatch.setattr(renewal, "TOLD", tmp_path / "state.json")
    with files.locked(world.ca):
        assert renewal.main() == 1
    assert "503" in json.loads((tmp_path / "state.json").read_text())["error"]
    assert renewal.main() == 0
    assert json.loads((tmp_path / "state.json").read_text()) == {"error": ""}


# -- what a board takes


def test_a_service_of_another_ca_gets_no_request(world: SigningWorld, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = SigningWorld(tmp_path / "other")
    stored = world.board("g1")
    with other.serving():
        (stored / "enrolment/url").write_text(other.url)
        with pytest.raises(EdgertError, match="certificate verify failed"):
            renew(stored, NOW)
    assert other.said == []


def test_a_board_cannot_pass_for_the_service_by_its_name(world: SigningWorld) -> None:
    """Its certificate is for servers, too (links), and its common name is a host's."""
    thief, stored = world.board("localhost"), world.board("g1")
    for name in ("pem", "key"):
        shutil.copy(thief / f"identity/board.{name}", world.folder / f"server/server.{name}")
    with world.serving() as false:
        (stored / "enrolment/url").write_text(f"https://localhost:{false.server_port}")
        with pytest.raises(EdgertError, match="certificate verify failed"):
            renew(stored, NOW)


@pytest.mark.parametrize("url", ["", "http://h", "https://h:port", "https://user@h", "https://h/x"])
def test_an_address_that_is_none_is_refused(world: SigningWorld, url: str) -> None:
    with pytest.raises(EdgertError, match=r"enrolment\.url"):
        renewal.ask_untrusted(url, "/", b"", b"")


def test_only_a_longer_certificate_for_this_board_and_its_key_is_taken(world: SigningWorld, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    own, key, ca = pair(world.board("g1"))[0], new_key(), world.authority()
    other = SigningWorld(tmp_path / "other").authority()

    def check(answer: bytes) -> object:
        return checked_untrusted(answer, key, own, ca.root_pem, NOW)

    good = ca.signed("g1", key.public_key(), NOW, LIFE)
    assert check(good)
    leaf, end, issuer = good.partition(b"-----END CERTIFICATE-----\n")
    unknown = ssl.PEM_cert_to_DER_cert(issuer.decode()).replace(
        b"\x2a\x86\x48\xce\x3d\x02", b"\x2a\xae\x48\xce\x3d\x02"
    )
    for answer, expected in (
        (leaf + end + ssl.DER_cert_to_PEM_cert(unknown).encode(), "by this board's CA"),  # a kind of key
        (b"", "certificates"),
        (b"\xff" * 100, "certificates"),
        (leaf + end, "two certificates"),
        (leaf + end + ca.root_pem, "by this board's CA"),
        (issuer + issuer, "by this board's CA"),
        (other.signed("g1", key.public_key(), NOW, LIFE), "by this board's CA"),
        (ca.signed("g2", key.public_key(), NOW, LIFE), "this board's name"),
        (ca.signed("g1", new_key().public_key(), NOW, LIFE), "its new key"),
    ):
        with pytest.raises(EdgertError, match=expected):
            check(answer)
    with pytest.raises(EdgertError, match="longer than"):
        checked_untrusted(good, key, own, ca.root_pem, NOW - timedelta(days=2))
    later = x509.load_pem_x509_certificate(ca.board("g1", NOW + LIFE, LIFE).certificate)
    with pytest.raises(EdgertError, match="longer than"):
        checked_untrusted(good, key, later, ca.root_pem, NOW)


# -- the files


class Killed(BaseException):
    """Ends the program at once."""


STEPS = (
    (files, "write"),
    (files, "sync"),
    (shutil, "rmtree"),
    (Path, "mkdir"),
    (Path, "symlink_to"),
    (Path, "replace"),
)


@pytest.mark.parametrize("times", [1, 2])
def test_wherever_it_is_killed_certificate_and_key_belong_together(
    world: SigningWorld, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Before and after each step, at the first renewal of a board and at a later one."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    base = world.board("g1")
    pairs = [world.authority().board("g1", NOW, LIFE) for _ in range(times)]
    for earlier in pairs[1:]:
        swap(base / "identity", earlier.certificate, earlier.key)
    for at in range(1000):
        left, stored = at, world.folder / f"killed{at}"
        shutil.copytree(base, stored, symlinks=True)

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def step(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                for turn in range(2):
                    left -= 1
                    if left < 0:
                        raise Killed
                    if turn == 0:
                        result = real(*arguments, **options)
                return result

            return step

        killed = False
        with monkeypatch.context() as patched:
            for owner, name in STEPS:
                patched.setattr(owner, name, counted(getattr(owner, name)))
            try:
                swap(stored / "identity", pairs[0].certificate, pairs[0].key)
            except Killed:
                killed = True
        assert pair(stored)[1]
        swap(stored / "identity", pairs[0].certificate, pairs[0].key)
        assert (stored / "identity/board.pem").read_bytes() == pairs[0].certificate
        assert pair(stored)[1]
        assert len(list((stored / "identity/renewed").iterdir())) == 2  # the link and its folder
        if not killed:
            assert at > 20
            return
    raise AssertionError("it never ended")


def test_a_new_provisioning_file_replaces_a_renewed_pair(world: SigningWorld, tmp_path: Path) -> None:
    stored, boot = world.board("g1"), tmp_path / "boot"
    renew(stored, NOW)
    assert (stored / "identity/board.key").is_symlink()
    boot.mkdir()
    (boot / "edgert.toml").write_text(f'[gateway]\nid = "g1"\n[enrolment]\nurl = "https://{HOST}"\n')
    assert take_untrusted(boot, stored)
    assert {path.name for path in (stored / "identity").iterdir()} == set()
    assert (stored / "enrolment/url").read_text() == f"https://{HOST}\n"


def test_the_key_is_for_its_group_alone(world: SigningWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = world.board("g1")
    monkeypatch.setattr(renewal, "group", os.getgid)
    renew(stored, NOW)
    assert (stored / "identity/board.key").stat().st_mode & 0o777 == 0o640
    assert (stored / "identity/board.pem").stat().st_mode & 0o777 == 0o644
