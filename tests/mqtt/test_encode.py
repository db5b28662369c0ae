"""What a client sends, byte for byte as the standard draws it."""

from __future__ import annotations

import pytest

from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import V5, V311, Subscription, Will
from edgert.mqtt.packets.properties import encode_properties, encode_varint


def test_connect_of_three_one_one_with_will_and_credentials() -> None:
    packet = encode.connect(
        V311, "id", clean=True, keep_alive_s=60, username="u", password=b"p", will=Will("w", b"x", 1, True)
    )
    assert packet == b"\x10\x1a\x00\x04MQTT\x04\xee\x00\x3c\x00\x02id\x00\x01w\x00\x01x\x00\x01u\x00\x01p"


def test_connect_of_five_carries_properties_of_session_and_will() -> None:
    packet = encode.connect(
        V5, "id", clean=False, keep_alive_s=10, will=Will("w", b"", 0, False, {"will_delay_interval": 5}),
        properties={"session_expiry_interval": 7, "receive_maximum": 65_535, "user_property": [("a", "b")]},
    )  # fmt: skip
    session = b"\x11\x00\x00\x00\x07\x21\xff\xff\x26\x00\x01a\x00\x01b"
    body = b"\x00\x04MQTT\x05\x04\x00\x0a\x0f" + session + b"\x00\x02id" + b"\x05\x18\x00\x00\x00\x05\x00\x01w\x00\x00"
    assert packet == bytes((0x10, len(body))) + body


def test_subscribe_options_and_identifier() -> None:
    wanted = Subscription("a/+", 1, 300, no_local=True, retain_as_published=True, retain_handling=2)
    assert encode.subscribe(V5, 9, [wanted]) == b"\x82\x0c\x00\x09\x03\x0b\xac\x02\x00\x03a/+\x2d"
    assert encode.subscribe(V311, 9, [wanted]) == b"\x82\x08\x00\x09\x00\x03a/+\x01"


def test_unsubscribe_and_disconnect() -> None:
    assert encode.unsubscribe(V311, 1, ["a", "b"]) == b"\xa2\x08\x00\x01\x00\x01a\x00\x01b"
    assert encode.unsubscribe(V5, 1, ["a"]) == b"\xa2\x06\x00\x01\x00\x00\x01a"
    assert encode.disconnect(V311, 4) == b"\xe0\x00"
    assert encode.disconnect(V5) == b"\xe0\x00"
    assert encode.disconnect(V5, 4) == b"\xe0\x02\x04\x00"


def test_many_pubacks_are_the_same_as_each_alone() -> None:
    ids = [1, 255, 256, 65_535]
    assert encode.pubacks(ids) == b"".join(encode.acknowledgement(encode.PUBACK, i) for i in ids)
    assert encode.pubacks([0x0102]) == b"\x40\x02\x01\x02"


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16_383, "ff7f"), (16_384, "808001"), (268_435_455, "ffffff7f")],
)
def test_variable_byte_integers_as_in_the_standards_table(value: int, raw: str) -> None:
    assert encode_varint(value).hex() == raw


def test_what_cannot_be_said_raises_value_error() -> None:
    with pytest.raises(ValueError, match="topic without wildcards, got 'a/#'"):
        encode.publish(V5, "a/#", b"")
    with pytest.raises(ValueError, match=r"0\.\.268435455, got 268435456"):
        encode_varint(268_435_456)
    with pytest.raises(ValueError, match="at most 65535 bytes of UTF-8"):
        encode.publish(V311, "t" * 65_536, b"")
    with pytest.raises(ValueError, match="expected a property of publish, got 'receive_maximum'"):
        encode_properties({"receive_maximum": 1}, "publish")
    with pytest.raises(ValueError, match="two-byte integer for receive_maximum, got 65536"):
        encode_properties({"receive_maximum": 65_536}, "connect")
    with pytest.raises(ValueError, match="at most 65535 bytes, got 65536"):
        encode_properties({"correlation_data": bytes(65_536)}, "publish")
