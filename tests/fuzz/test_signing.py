"""What comes from outside about certificates of boards: requests at the service, and its answers at a board."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgert.boards.authority import Authority
from edgert.boards.certificates import new_key
from edgert.boards.signing_requests import (
    ENROL,
    MOST_BYTES,
    RENEW,
    enrolment_untrusted,
    signing_request,
    signing_request_untrusted,
)
from edgert.cli.fleet.https_server import Asked, HttpsAnswer, HttpsServer
from edgert.core.errors import EdgertError
from edgert.core.settings.board import TOKEN
from provisioning.enrolment import GIVEN, identity_untrusted, pinned_untrusted
from provisioning.renewal import MOST_ANSWER, ask_untrusted, checked_untrusted
from tests.fuzz.nearly import as_bytes, texts
from tests.provisioning.signing_world import LIFE, NOW, SigningWorld

KEY = new_key()
FINGERPRINT = "0" * 64
"""No certificate has it."""
REQUEST = signing_request("farm", "g1", KEY)
PEM = st.one_of(st.binary(max_size=300), st.binary(max_size=90).map(lambda raw: b"-----BEGIN CERTIFICATE-----\n" + raw))
ONE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors])


def changed(whole: bytes, at: int) -> bytes:
    """One byte of it is another."""
    raw = bytearray(whole)
    raw[at % len(raw)] ^= 1 + at % 255
    return bytes(raw)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> SigningWorld:
    """With two boards."""
    world = SigningWorld(tmp_path_factory.mktemp("fuzz"))
    for name in ("g1", "g3"):
        world.authority().board(name, NOW - LIFE / 2, LIFE)
    return world


@pytest.fixture(scope="module")
def server(world: SigningWorld) -> Iterator[HttpsServer]:
    with world.serving() as server:
        yield server


@pytest.fixture(scope="module")
def authority(world: SigningWorld) -> Authority:
    return world.authority()


@given(st.one_of(st.binary(max_size=400), st.integers(0, 2**32)))
@example(b"-----BEGIN CERTIFICATE REQUEST-----\n" + b"A" * 2 * MOST_BYTES)
def test_signing_requests(came: bytes | int) -> None:
    """A number: a good request with a byte of it changed. What is taken has the key that signed it."""
    with suppress(EdgertError):
        name, key = signing_request_untrusted(changed(REQUEST, came) if isinstance(came, int) else came)
        assert (name, key) == ("g1", KEY.public_key())


@given(st.one_of(st.binary(max_size=400), st.integers(0, 2**32)), st.booleans())
def test_the_service_signs_for_a_board_alone(world: SigningWorld, came: bytes | int, as_certificate: bool) -> None:
    authority = world.authority()
    good = authority.certificates("g1")[0].public_bytes(Encoding.DER)
    noise = came if isinstance(came, bytes) else changed(good if as_certificate else REQUEST, came)
    certificate, body = (noise, REQUEST) if as_certificate else (good, noise)
    answer = world.service.answer_untrusted(Asked(RENEW, body, certificate, "a"))
    assert answer.status == 403 or not as_certificate
    with suppress(EdgertError):
        assert authority.owner_untrusted(certificate) == "g1"


@given(as_bytes({"token": "a" * 43, "request": REQUEST.decode()}))
@example(b"[" * 9000)
def test_enrolments(world: SigningWorld, body: bytes) -> None:
    """No token was made, so none is good."""
    with suppress(EdgertError):
        token, request = enrolment_untrusted(body)
        assert TOKEN.fullmatch(token)
        assert isinstance(request, bytes)
    assert world.service.answer_untrusted(Asked(ENROL, body, None, "a")).status == 403


@given(as_bytes(dict.fromkeys(GIVEN, "")), PEM, st.integers(0, 2**32))
def test_identities_that_come_for_a_board(authority: Authority, answer: bytes, noise: bytes, at: int) -> None:
    good = authority.signed("g3", KEY.public_key(), NOW, LIFE)
    bent = json.dumps(dict.fromkeys(GIVEN, "") | {"certificate": changed(good, at).decode("latin-1")}).encode()
    for came in (answer, noise, bent):
        with suppress(EdgertError):
            assert set(identity_untrusted(came, KEY)) == {*GIVEN, "key"}
    for came in (noise, changed(authority.root_pem, at)):
        with suppress(EdgertError):
            assert pinned_untrusted(came, FINGERPRINT) == authority.root_pem


@given(texts)
def test_paths_of_the_service(world: SigningWorld, path: str) -> None:
    assert world.service.answer_untrusted(Asked(path, b"", None, "a")).status in (403, 404)


@given(PEM, st.integers(0, 2**32))
def test_certificates_that_come_for_a_board(authority: Authority, noise: bytes, at: int) -> None:
    """Nothing is taken but a certificate of this CA for this key."""
    own = next(one for one in authority.certificates("g3") if one.public_key() != KEY.public_key())
    good = authority.signed("g3", KEY.public_key(), NOW, LIFE)
    for answer in (noise, changed(good, at)):
        with suppress(EdgertError):
            assert checked_untrusted(answer, KEY, own, authority.root_pem, NOW).public_key() == KEY.public_key()


@ONE
@given(st.integers(200, 599), st.binary(max_size=200))
@example(200, b"x" * (MOST_ANSWER + 1))
@example(404, b"x" * (MOST_ANSWER + 1))
def test_answers_of_the_service(world: SigningWorld, server: HttpsServer, status: int, body: bytes) -> None:
    server.answer_untrusted = lambda asked: HttpsAnswer(status, body)
    with suppress(EdgertError):
        answer = ask_untrusted(world.url, RENEW, b"", (world.ca / "root.pem").read_bytes())
        assert (status, answer) == (200, body)
        assert len(body) <= MOST_ANSWER
