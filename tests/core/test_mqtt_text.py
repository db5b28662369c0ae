"""What may stand in a packet, by the table of MQTT 5, section 1.5.4."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.text.mqtt_text import fits, fitting
from edgert.core.text.topic_template import TopicTemplate
from edgert.mqtt.packets.encode import check_topic
from edgert.mqtt.packets.properties import encode_text
from edgert.mqtt.topics import check_filter

UNFIT = ["\0", "\t", "\x1f", "\x7f", "\x85", "\x9f", "\ud800", "\udfff", "\ufdd0", "\ufdef", "\ufffe", "\uffff",
         "\U0001fffe", "\U0010ffff"]  # fmt: skip
FIT = [" ", "~", "\xa0", "é", "\ufdcf", "\ufdf0", "\ufeff", "\ufffd", "\U00010000", "\U0001f600", "\U0010fffd"]


@given(st.characters())
def test_a_character_fits_unless_it_is_a_control_a_surrogate_or_none_at_all(char: str) -> None:
    code = ord(char)
    nobody = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    assert fits(f"a{char}b") is not (unicodedata.category(char) in ("Cc", "Cs") or nobody)
    assert fits(fitting(f"a{char}b"))
    assert fitting(f"a{char}b") == (f"a{char}b" if fits(char) else "a\ufffdb")


@pytest.mark.parametrize("char", UNFIT)
def test_nothing_that_is_sent_holds_what_a_broker_may_hang_up_at(char: str) -> None:
    for refuse in (encode_text, check_topic, check_filter, TopicTemplate):
        with pytest.raises(ValueError, match="control characters"):
            refuse(f"out/a{char}/state")
    template = TopicTemplate("out/{name}/state", sink=True)
    with pytest.raises(ValueError, match="expected field 'name' to hold a topic level"):
        template.fill([{"name": f"line 1{char}", "v": 2}])


@pytest.mark.parametrize("char", FIT)
def test_other_text_is_sent(char: str) -> None:
    text = f"out/a{char}/state"
    assert encode_text(text)[2:].decode() == text
    check_topic(text)
    assert TopicTemplate("out/{name}/state", sink=True).fill([{"name": f"a{char}"}]) == [text]


def test_a_topic_that_rows_make_too_long_is_the_rows_fault() -> None:
    template = TopicTemplate("out/{name}/{other}", sink=True)
    with pytest.raises(ValueError, match="expected a topic of at most 65535 bytes"):
        template.fill([{"name": "ä" * 20_000, "other": "ö" * 20_000}])
