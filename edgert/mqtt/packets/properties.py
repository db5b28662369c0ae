"""MQTT 5 properties (section 2.2.2): one table of names, identifiers, types and packets; encode and decode from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from edgert.core.errors import ProtocolError, show
from edgert.core.text.mqtt_text import UNFIT, fits
from edgert.mqtt.packets.packets import Properties


class Form(Enum):
    BYTE = "byte"
    SHORT = "two-byte integer"
    LONG = "four-byte integer"
    VARINT = "variable byte integer"
    TEXT = "UTF-8 string"
    BINARY = "binary data"
    PAIR = "pair of UTF-8 strings"


class PropertySpec(NamedTuple):
    name: str
    type: Form
    packets: frozenset[str]


def _entry(name: str, kind: Form, packets: str) -> PropertySpec:
    return PropertySpec(name, kind, frozenset(packets.split()))


_ACKS = "puback pubrec pubrel pubcomp suback unsuback"

TABLE: dict[int, PropertySpec] = {
    0x01: _entry("payload_format_indicator", Form.BYTE, "publish will"),
    0x02: _entry("message_expiry_interval", Form.LONG, "publish will"),
    0x03: _entry("content_type", Form.TEXT, "publish will"),
    0x08: _entry("response_topic", Form.TEXT, "publish will"),
    0x09: _entry("correlation_data", Form.BINARY, "publish will"),
    0x0B: _entry("subscription_identifier", Form.VARINT, "publish subscribe"),
    0x11: _entry("session_expiry_interval", Form.LONG, "connect connack disconnect"),
    0x12: _entry("assigned_client_identifier", Form.TEXT, "connack"),
    0x13: _entry("server_keep_alive", Form.SHORT, "connack"),
    0x15: _entry("authentication_method", Form.TEXT, "connect connack"),
    0x16: _entry("authentication_data", Form.BINARY, "connect connack"),
    0x17: _entry("request_problem_information", Form.BYTE, "connect"),
    0x18: _entry("will_delay_interval", Form.LONG, "will"),
    0x19: _entry("request_response_information", Form.BYTE, "connect"),
    0x1A: _entry("response_information", Form.TEXT, "connack"),
    0x1C: _entry("server_reference", Form.TEXT, "connack disconnect"),
    0x1F: _entry("reason_string", Form.TEXT, f"connack disconnect {_ACKS}"),
    0x21: _entry("receive_maximum", Form.SHORT, "connect connack"),
    0x22: _entry("topic_alias_maximum", Form.SHORT, "connect connack"),
    0x23: _entry("topic_alias", Form.SHORT, "publish"),
    0x24: _entry("maximum_qos", Form.BYTE, "connack"),
    0x25: _entry("retain_available", Form.BYTE, "connack"),
    0x26: _entry("user_property", Form.PAIR, f"connect connack publish will subscribe unsubscribe disconnect {_ACKS}"),
    0x27: _entry("maximum_packet_size", Form.LONG, "connect connack"),
    0x28: _entry("wildcard_subscription_available", Form.BYTE, "connack"),
    0x29: _entry("subscription_identifier_available", Form.BYTE, "connack"),
    0x2A: _entry("shared_subscription_available", Form.BYTE, "connack"),
}
_IDS = {entry.name: (identifier, entry) for identifier, entry in TABLE.items()}
_WIDTHS = {Form.BYTE: 1, Form.SHORT: 2, Form.LONG: 4}


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def encode_varint(value: int) -> bytes:
    """`value` as a variable byte integer of one to four bytes; ValueError outside 0..268,435,455."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if not 0 <= value <= 268_435_455:
        raise ValueError(f"expected 0..268435455, got {value}")
    out = bytearray()
    while True:
        value, digit = value >> 7, value & 0x7F
        out.append(digit | 0x80 if value else digit)
        if not value:
            return bytes(out)


def read_varint_untrusted(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The variable byte integer at `at` and the offset behind it; ProtocolError if malformed or cut off."""
    value = 0
    for shift in (0, 7, 14, 21):
        if at >= end:
            raise ProtocolError("expected a variable byte integer, got the end of the packet")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ProtocolError("expected a variable byte integer of at most 4 bytes, got a longer one")


def encode_text(text: str) -> bytes:
    """A string with its two-byte length; ValueError if it is too long, or a broker may hang up at it."""
    if not fits(text):
        raise ValueError(f"expected text without {UNFIT}, got {show(text)}")
    raw = text.encode()
    if len(raw) > 65_535:
        raise ValueError(f"expected at most 65535 bytes of UTF-8, got {show(text)}")
    return len(raw).to_bytes(2, "big") + raw


def encode_binary(raw: bytes) -> bytes:
    if len(raw) > 65_535:
        raise ValueError(f"expected at most 65535 bytes, got {len(raw)}")
    return len(raw).to_bytes(2, "big") + raw


def read_binary_untrusted(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Length-prefixed bytes at `at` and the offset behind them."""
    start = at + 2
    stop = start + (data[at] << 8 | data[at + 1]) if start <= end else end + 1
    if stop > end:
        raise ProtocolError("expected a length-prefixed field, got the end of the packet")
    return data[start:stop], stop


def read_text_untrusted(data: bytes, at: int, end: int) -> tuple[str, int]:
    """A UTF-8 string (section 1.5.4: no NUL, no surrogates) at `at` and the offset behind it."""
    raw, at = read_binary_untrusted(data, at, end)
    return text_untrusted(raw), at


def text_untrusted(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"expected UTF-8, got {show(raw)}") from error
    if "\0" in text:
        raise ProtocolError(f"expected a string without NUL, got {show(raw)}")
    return text


def encode_properties(properties: Mapping[str, Any], packet: str) -> bytes:
    """The whole property section with its length. `packet` names its kind ("connect", "will", ...).

    Raises ValueError for an unknown name, a name that has no business in `packet`, or a value that does not fit.
    """
    body = bytearray()
    for name, value in properties.items():
        if name not in _IDS or packet not in _IDS[name][1].packets:
            raise ValueError(f"expected a property of {packet}, got {show(name)}")
        identifier, entry = _IDS[name]
        for one in value if isinstance(value, list | tuple) else (value,):
            body.append(identifier)
            body += _encode_value(entry, one)
    return encode_varint(len(body)) + bytes(body)


def _encode_value(entry: PropertySpec, value: Any) -> bytes:
    if entry.type is Form.TEXT:
        return encode_text(value)
    if entry.type is Form.PAIR:
        return encode_text(value[0]) + encode_text(value[1])
    if entry.type is Form.BINARY:
        return encode_binary(value)
    if entry.type is Form.VARINT:
        return encode_varint(value)
    try:
        return int(value).to_bytes(_WIDTHS[entry.type], "big")
    except OverflowError:
        raise ValueError(f"expected a {entry.type.value} for {entry.name}, got {value}") from None


def read_properties_untrusted(data: bytes, at: int, end: int, packet: str) -> tuple[Properties, int]:
    """The property section at `at` and the offset behind it. Repeatable ones come as lists.

    Raises ProtocolError for anything that section 2.2.2 does not allow in `packet`.
    """
    length, at = read_varint_untrusted(data, at, end)
    stop = at + length
    if stop > end:
        raise ProtocolError(f"expected {length} bytes of properties, got {end - at}")
    found: Properties = {}
    while at < stop:
        entry = TABLE.get(data[at])
        if entry is None or packet not in entry.packets:
            raise ProtocolError(f"expected a property of {packet}, got identifier 0x{data[at]:02X}")
        value, at = _read_value(entry.type, data, at + 1, stop)
        name = entry.name
        if entry.type is Form.PAIR or (name == "subscription_identifier" and packet == "publish"):
            found.setdefault(name, []).append(value)
        elif name in found:
            raise ProtocolError(f"expected {name} once, got it twice")
        else:
            found[name] = value
    return found, stop


def _read_value(kind: Form, data: bytes, at: int, end: int) -> tuple[Any, int]:
    if kind is Form.TEXT:
        return read_text_untrusted(data, at, end)
    if kind is Form.PAIR:
        name, at = read_text_untrusted(data, at, end)
        value, at = read_text_untrusted(data, at, end)
        return (name, value), at
    if kind is Form.BINARY:
        return read_binary_untrusted(data, at, end)
    if kind is Form.VARINT:
        return read_varint_untrusted(data, at, end)
    stop = at + _WIDTHS[kind]
    if stop > end:
        raise ProtocolError(f"expected a {kind.value}, got the end of the properties")
    return int.from_bytes(data[at:stop], "big"), stop
