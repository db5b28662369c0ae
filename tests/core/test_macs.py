"""MACs of results and acknowledgements: the right one is taken, and nothing else is."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.compression import compressed
from edgert.core.errors import PayloadError
from edgert.core.results.macs import (
    MAC_BYTES,
    MOST_MACS,
    OVERHEAD,
    gateway_key,
    is_authentic,
    split_untrusted,
    with_macs,
)
from edgert.core.results.results import EpochHello, acks_topic, pack_result, results_topic
from edgert.core.text.key_lines import KeyFileError, key_line, parse_keys

CENTRAL, FORMER = bytes(range(32)), bytes(range(1, 33))
KEY = gateway_key(CENTRAL, "farm", "g1")
TOPIC = results_topic("farm", "g1", "air")
payloads = st.binary(max_size=200)


def is_good(message: bytes, topic: str = TOPIC, *keys: bytes) -> bool:
    try:
        macs, payload = split_untrusted(message)
    except PayloadError:
        return False
    return is_authentic(macs, payload, topic, keys or [KEY])


@given(payloads)
def test_what_was_signed_comes_back(payload: bytes) -> None:
    message = with_macs(payload, TOPIC, [KEY])
    assert len(message) == len(payload) + OVERHEAD
    assert split_untrusted(message)[1] == payload
    assert is_good(message)


def test_the_format_stays_what_the_page_says() -> None:
    """By the standard library's other way, from the description alone."""
    key = hmac.new(CENTRAL, b"edgert/v1 gateway\0farm\0g1", hashlib.sha256).digest()
    mac = hmac.new(key, TOPIC.encode() + b"\0" + b"payload", hashlib.sha256).digest()
    assert with_macs(b"payload", TOPIC, [KEY]) == b"\xc1\x01" + mac + b"payload"
    assert mac.hex() == "79e52d239cd2c64123cc7f7af206e1c94cafa9f4caad6e73416afb0a449dbf10", "as `openssl dgst` says"


@given(payloads, st.data())
def test_any_changed_bit_is_refused(payload: bytes, data: st.DataObject) -> None:
    message = bytearray(with_macs(payload, TOPIC, [KEY]))
    bit = data.draw(st.integers(0, 8 * len(message) - 1))
    message[bit // 8] ^= 1 << bit % 8
    assert not is_good(bytes(message))


@given(payloads, st.data())
def test_a_message_that_is_cut_or_longer_is_refused(payload: bytes, data: st.DataObject) -> None:
    message = with_macs(payload, TOPIC, [KEY])
    assert not is_good(message[: data.draw(st.integers(0, len(message) - 1))])
    assert not is_good(message + data.draw(st.binary(min_size=1, max_size=40)))


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param(results_topic("farm", "g1", "water"), id="another flow"),
        pytest.param(results_topic("farm", "g2", "air"), id="another gateway"),
        pytest.param(results_topic("farms", "g1", "air"), id="another fleet"),
        pytest.param(acks_topic("farm", "g1"), id="a result as acknowledgement"),
    ],
)
@given(payload=payloads)
def test_a_message_is_good_on_its_own_topic_alone(topic: str, payload: bytes) -> None:
    assert not is_good(with_macs(payload, TOPIC, [KEY]), topic)


def test_an_acknowledgement_is_no_result() -> None:
    assert not is_good(with_macs(b"x", acks_topic("farm", "g1"), [KEY]))


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(gateway_key(CENTRAL, "farm", "g2"), id="of another gateway"),
        pytest.param(gateway_key(CENTRAL, "farms", "g1"), id="of another fleet"),
        pytest.param(gateway_key(FORMER, "farm", "g1"), id="of another central key"),
        pytest.param(CENTRAL, id="the central key itself"),
    ],
)
def test_another_key_is_refused(key: bytes) -> None:
    assert not is_good(with_macs(b"x", TOPIC, [key]))


def test_names_do_not_run_into_each_other() -> None:
    assert gateway_key(CENTRAL, "farm", "a-b") != gateway_key(CENTRAL, "farm-a", "b")
    assert gateway_key(CENTRAL, "f", "g.h") != gateway_key(CENTRAL, "f.g", "h")


def test_while_the_key_changes_one_of_several_is_enough() -> None:
    old = gateway_key(FORMER, "farm", "g1")
    assert is_good(with_macs(b"x", TOPIC, [old]), TOPIC, KEY, old)
    assert is_good(with_macs(b"x", TOPIC, [KEY, old]), TOPIC, old)
    assert not is_good(with_macs(b"x", TOPIC, [old]), TOPIC, KEY)


@given(st.binary(max_size=400))
def test_bytes_from_outside_are_split_or_refused_with_the_one_error(message: bytes) -> None:
    try:
        macs, payload = split_untrusted(message)
    except PayloadError:
        assert message[0] == 0xC1
        return
    assert len(macs) <= MOST_MACS
    assert all(len(mac) == MAC_BYTES for mac in macs)
    assert message.endswith(payload)
    assert not is_authentic(macs, payload, TOPIC, [KEY])


@given(payloads)
def test_a_result_without_a_mac_is_never_taken_for_one_with(content: bytes) -> None:
    hello = pack_result(EpochHello(gateway="g1", flow="air"))
    for payload in (hello, compressed(hello + bytes(1_000) + content)):
        assert split_untrusted(payload) == ([], payload)


@pytest.mark.parametrize("text", ["", "# nothing\n", "short\n", f"{key_line(CENTRAL)}\nrubbish\n"])
def test_a_key_file_that_is_none_is_named_and_shows_no_key(text: str) -> None:
    with pytest.raises(KeyFileError, match=r"^/k.*expected") as caught:
        parse_keys(text, "/k", "edgert fleet mac-key")
    assert key_line(CENTRAL) not in str(caught.value)
