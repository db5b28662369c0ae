"""Control messages that wait: none is lost for want of room, the newest of a topic wins."""

from __future__ import annotations

import asyncio

import pytest

from edgert.mqtt.clients.control_plane import MqttRequest
from gateway.control.mailbox import Mailbox
from tests.waiting import in_loop


@in_loop
async def test_1500_flows_at_once_are_all_taken_and_the_newest_document_of_each_wins() -> None:
    box = Mailbox()
    for version in (1, 2):
        for n in range(1_500):
            box.put_nowait((f"flows/{n}", b"%d" % version, None))
    assert box.qsize() == 1_500
    assert [await box.get() for _ in range(1_500)] == [(f"flows/{n}", b"2", None) for n in range(1_500)]


@in_loop
async def test_messages_that_ask_for_an_answer_each_get_one() -> None:
    box = Mailbox()
    requests = [MqttRequest("answers", b"%d" % n) for n in range(3)]
    for request in requests:
        box.put_nowait(("flows/f", b"x", request))
    assert [(await box.get())[2] for _ in range(3)] == requests


@in_loop
async def test_what_waits_is_bounded_in_number_and_bytes() -> None:
    box = Mailbox(most_messages=2, most_bytes=100)
    box.put_nowait(("a", bytes(60), None))
    with pytest.raises(asyncio.QueueFull):
        box.put_nowait(("b", bytes(60), None))
    box.put_nowait(("a", bytes(90), None))  # in place of the first
    box.put_nowait(("b", bytes(10), None))
    with pytest.raises(asyncio.QueueFull):
        box.put_nowait(("c", b"", None))
    await box.get()
    box.put_nowait(("c", bytes(90), None))


@in_loop
async def test_long_topics_and_what_a_request_brings_count_for_the_bound() -> None:
    box = Mailbox(most_bytes=100_000)
    box.put_nowait(("t" * 60_000, b"", None))
    for message in (
        ("u" * 60_000, b"", None),
        ("u", b"", MqttRequest("a" * 60_000, None)),
        ("u", b"", MqttRequest("a", bytes(60_000))),
    ):
        with pytest.raises(asyncio.QueueFull):
            box.put_nowait(message)
    await box.get()
    box.put_nowait(("u", b"", MqttRequest("a", bytes(60_000))))


@in_loop
async def test_who_waits_gets_the_next_message() -> None:
    box = Mailbox()
    waiting = asyncio.create_task(box.get())
    await asyncio.sleep(0)
    box.put_nowait(("a", b"1", None))
    assert await waiting == ("a", b"1", None)
