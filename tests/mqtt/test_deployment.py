"""A deployment against messages made by hand; over a real broker and gateway: tests/cli/test_deploy.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.settings.connection import Connection
from edgert.mqtt.clients.deployment import Deployment, DeploymentAnswer, digest, read_answer_untrusted

DOCUMENT = b'name = "f"'


class Sent:
    """Stands for the connection: remembers what is published."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.error = ""

    def publish(self, topic: str, payload: bytes, *, retain: bool, **_: object) -> bool:
        assert retain
        self.messages.append((topic, payload))
        return True


def deployment(gateway: str = "", payload: bytes = DOCUMENT) -> tuple[Deployment, Sent]:
    made, sent = Deployment(Connection(), "test", "farm", "f", payload, gateway=gateway), Sent()
    made.connection = sent  # type: ignore[assignment]
    return made, sent


def state(gateway: str = "g1", payload: bytes = DOCUMENT, **answer: Any) -> tuple[str, bytes, None]:
    plain = {"accepted": True, "version": 3, "running_version": 3, "digest": digest(payload), **answer}
    return f"edgert/v1/farm/{gateway}/flows/f/state", json.dumps(plain).encode(), None


def status(gateway: str, text: str) -> tuple[str, bytes, None]:
    return f"edgert/v1/farm/{gateway}/status", text.encode(), None


def test_it_is_sent_once_the_broker_has_taken_the_subscription_and_again_after_a_reconnect() -> None:
    made, sent = deployment("g1")
    assert not sent.messages
    made.subscribed()
    assert sent.messages == [("edgert/v1/farm/g1/flows/f", DOCUMENT)]
    made.subscribed()
    assert len(sent.messages) == 2
    made.message_untrusted(*state())
    made.subscribed()
    assert len(sent.messages) == 2, "what is answered is not sent again"


def test_only_the_answer_to_this_write_counts() -> None:
    made, _ = deployment("g1")
    made.subscribed()
    made.retained_untrusted(*state())
    made.message_untrusted(*state(payload=b"another"))
    made.message_untrusted(*state(gateway="g2"))
    before = made.answer
    made.message_untrusted(*state())
    assert (before, made.answer) == (None, DeploymentAnswer(True, 3, (), 3, digest(DOCUMENT)))


def test_without_a_gateway_it_waits_for_the_choice_among_those_seen() -> None:
    made, sent = deployment()
    made.subscribed()
    made.retained_untrusted(*status("g1", '{"state": "online"}'))
    made.retained_untrusted(*status("g2", '{"state": "offline"}'))
    made.retained_untrusted(*status("@collector", '{"state": "online"}'))
    assert (made.seen, made.online, sent.messages) == ({"g1": "online", "g2": "offline"}, ["g1"], [])
    made.choose("g1")
    assert sent.messages == [("edgert/v1/farm/g1/flows/f", DOCUMENT)]


def test_a_gateway_whose_status_is_wiped_was_not_seen() -> None:
    made, _ = deployment()
    made.message_untrusted(*status("g1", '{"state": "online"}'))
    made.message_untrusted(*status("g1", ""))
    assert made.seen == {}


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b"\xff", b'{"accepted": 1}', b"[" * 100_000])
def test_what_is_no_answer_is_none(payload: bytes) -> None:
    assert read_answer_untrusted(payload) is None


def test_a_refusal_tells_every_error() -> None:
    errors = [{"path": "a.b", "expected": "x", "got": "y"}, {"path": "", "got": 5}, "junk"]
    answer = read_answer_untrusted(json.dumps({"accepted": False, "errors": errors, "running_version": 2}).encode())
    assert answer is not None
    assert [str(p) for p in answer.problems] == ["a.b: expected x, got y", "flow: expected ?, got 5"]
    assert (answer.accepted, answer.version, answer.running_version) == (False, None, 2)
    bare = read_answer_untrusted(b'{"accepted": false}')
    assert bare is not None
    assert bare.problems, "a refusal without errors is not taken for a good answer"


def test_an_answer_may_have_cautions() -> None:
    for found, expected in ((["it may loop", 5], ("it may loop", "5")), ("no list", ())):
        answer = read_answer_untrusted(json.dumps({"accepted": True, "version": 1, "cautions": found}).encode())
        assert answer is not None
        assert answer.cautions == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["path", "got", "x"]), inner),
)
KEYS = st.sampled_from(["accepted", "version", "errors", "running_version", "digest", "state", "cautions"])


@given(st.binary() | st.dictionaries(KEYS, JSON).map(lambda d: json.dumps(d).encode()))
def test_nothing_that_comes_can_raise(payload: bytes) -> None:
    made, _ = deployment("g1")
    for topic in ("edgert/v1/farm/g1/status", "edgert/v1/farm/g1/flows/f/state", "elsewhere"):
        made.message_untrusted(topic, payload, None)
        made.retained_untrusted(topic, payload, None)
