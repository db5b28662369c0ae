"""An uplink with a key: results leave with a MAC, and only an acknowledgement with one frees the outbox."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.errors import EdgertError
from edgert.core.results.macs import gateway_key, is_authentic, split_untrusted, with_macs
from edgert.core.results.pieces import Piece
from edgert.core.results.results import (
    Acknowledgement,
    EpochHello,
    RowsBatch,
    acks_topic,
    pack_acknowledgement,
    results_topic,
    unpack_result_untrusted,
)
from edgert.core.text.key_lines import key_line
from edgert.mqtt.clients.credentials import read_mac_key
from gateway.uplink.macs import Macs
from gateway.uplink.uplink import HELLO_S
from tests.gateway.uplink_rig import E1, Acks, Rig
from tests.waiting import in_loop

CENTRAL = bytes(range(32))
KEY = gateway_key(CENTRAL, "fleet", "g1")
OF_G2 = gateway_key(CENTRAL, "fleet", "g2")
TOPIC, ACKS = results_topic("fleet", "g1", "f"), acks_topic("fleet", "g1")


class KeyRig(Rig):
    """A rig whose uplink has a key."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.uplink.macs = Macs(KEY)
        self.packets: list[bytes] = []
        """Results as they left."""
        self.tokens: list[bytes] = []
        """Of the hellos that left."""

    def publish(self, topic: str, payload: bytes) -> bool:
        self.packets.append(payload)
        macs, content = split_untrusted(payload)
        assert is_authentic(macs, content, topic, [KEY])
        if isinstance(hello := unpack_result_untrusted(content), EpochHello):
            self.tokens.append(hello.token)
        return super().publish(topic, content)

    async def hear(
        self, keys: Sequence[bytes], acks: Acks | None = None, answers: tuple[str, ...] = (), topic: str = ACKS
    ) -> bytes:
        """An acknowledgement with MACs by `keys`; if it answers, then the newest hello."""
        tokens = dict.fromkeys(answers, self.tokens[-1]) if answers else {}
        message = Acknowledgement(gateway="g1", collector="c", acks=acks or {}, answers=answers, tokens=tokens)
        payload = pack_acknowledgement(message)
        payload = with_macs(payload, topic, keys) if keys else payload
        await self.uplink.acknowledged_untrusted(payload)
        return payload

    async def in_contact(self) -> None:
        self.uplink.connected()
        await self.turn()
        await self.hear([KEY], answers=("f",))

    @property
    def waiting(self) -> int:
        return self.database.outbox_size.batches


@pytest.fixture
def rig(tmp_path: Path) -> KeyRig:
    made = KeyRig(tmp_path)
    made.flow()
    made.rows(3)
    return made


@in_loop
async def test_a_forged_acknowledgement_of_what_was_sent_empties_no_outbox(
    rig: KeyRig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.in_contact()
    assert await rig.turn() == [(E1, n) for n in (1, 2, 3, 4)]
    landed = {("f", E1, 0): 4}
    await rig.hear([], landed)
    assert "expected a MAC by this gateway's key (central.mac_key_file), got none" in rig.uplink.status.error
    await rig.hear([OF_G2], landed)
    await rig.hear([CENTRAL], landed)
    await rig.hear([KEY], landed, topic=acks_topic("fleet", "g2"))
    await rig.hear([KEY], landed, topic=TOPIC)
    assert rig.waiting == 4
    section = rig.uplink.section()
    assert (section["not_authentic_acks"], section["bad_acks"], section["acknowledged"]) == (5, 5, 0)
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1, "the first is told"
    rig.clock.advance(61)
    await rig.hear([], landed)
    assert "5 more in 61 s" in caplog.text
    await rig.hear([KEY], landed)
    assert (rig.waiting, rig.uplink.status.error) == (0, "")


@in_loop
async def test_a_result_that_comes_back_as_an_acknowledgement_is_refused(rig: KeyRig) -> None:
    await rig.in_contact()
    await rig.turn()
    for packet in rig.packets:
        await rig.uplink.acknowledged_untrusted(packet)
    assert rig.uplink.section()["not_authentic_acks"] == len(rig.packets)
    assert rig.waiting == 4


@in_loop
async def test_a_forged_answer_to_a_hello_starts_nothing(rig: KeyRig) -> None:
    rig.uplink.connected()
    assert await rig.turn() == ["f"]
    await rig.hear([], answers=("f",))
    await rig.hear([OF_G2], answers=("f",))
    assert await rig.turn() == []


@in_loop
async def test_a_recorded_answer_to_an_earlier_hello_is_no_answer(rig: KeyRig) -> None:
    rig.uplink.connected()
    await rig.turn()
    recorded = await rig.hear([KEY], answers=("f",))
    assert rig.uplink.may_leave("f")
    rig.uplink.connected()
    assert await rig.turn() == ["f"]
    await rig.uplink.acknowledged_untrusted(recorded)
    assert await rig.turn() == [], "its MAC is good, its token is the earlier hello's"
    await rig.hear([KEY], answers=("f",))
    assert await rig.turn() == [(E1, n) for n in (1, 2, 3, 4)]


@in_loop
async def test_a_late_answer_to_the_first_of_two_hellos_is_an_answer(rig: KeyRig) -> None:
    rig.uplink.connected()
    await rig.turn()
    rig.clock.advance(HELLO_S)
    assert await rig.turn() == ["f"]
    assert rig.tokens[0] == rig.tokens[1] != b""
    await rig.hear([KEY], answers=("f",))
    assert rig.uplink.may_leave("f")


@in_loop
async def test_a_collector_whose_central_key_changes_is_heard_through_either_key(rig: KeyRig) -> None:
    await rig.in_contact()
    await rig.turn()
    new = gateway_key(bytes(32), "fleet", "g1")
    await rig.hear([new], {("f", E1, 0): 4})
    assert rig.waiting == 4
    await rig.hear([new, KEY], {("f", E1, 0): 4})
    assert rig.waiting == 0


@in_loop
async def test_batches_of_before_the_key_leave_with_a_mac(tmp_path: Path) -> None:
    old = Rig(tmp_path)
    old.flow()
    old.rows(3)
    old.database.close()
    rig = KeyRig(tmp_path)
    await rig.in_contact()
    assert await rig.turn() == [(E1, n) for n in (1, 2, 3, 4)]
    assert len(rig.packets) == 5


@in_loop
async def test_without_a_key_an_acknowledgement_with_a_mac_counts_as_any(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.flow()
    await rig.admitted()
    await rig.turn()
    message = pack_acknowledgement(Acknowledgement(gateway="g1", collector="c", acks={("f", E1, 0): 1}))
    await rig.uplink.acknowledged_untrusted(with_macs(message, ACKS, [KEY]))
    assert rig.database.outbox_size.batches == 0


@in_loop
async def test_pieces_with_macs_stay_within_the_brokers_limit(rig: KeyRig) -> None:
    columns = ("window_start", "window_end", "n")
    rows = [[float(n), n + 60.0, n * 7919 % 1000] for n in range(1000)]
    rig.database.commit([Checkpoint("f", Position(), [], b"", columns, rows)], {}, 1)
    await rig.in_contact()
    rig.uplink.limit = lambda topic: 400
    rig.packets.clear()
    await rig.turn()
    pieces = [m for m in rig.sent if isinstance(m, Piece)]
    assert len(pieces) > 10
    assert all(len(packet) + len(TOPIC) + 7 <= 400 for packet in rig.packets), "7: header, lengths, packet id"
    whole = unpack_result_untrusted(b"".join(piece.data for piece in pieces))
    assert isinstance(whole, RowsBatch)
    assert whole.rows == rows


def test_a_key_file_of_a_gateway_has_one_key(tmp_path: Path) -> None:
    file = tmp_path / "mac.key"
    file.write_text(f"{key_line(KEY)}\n")
    assert read_mac_key(str(file)) == KEY
    file.write_text(f"{key_line(KEY)}\n{key_line(OF_G2)}\n")
    with pytest.raises(
        EdgertError, match=r"^central\.mac_key_file .*mac\.key: expected one key, that of this gateway, got 2"
    ):
        read_mac_key(str(file))
    with pytest.raises(EdgertError, match=r"^central\.mac_key_file /nowhere: No such file"):
        read_mac_key("/nowhere")
    assert read_mac_key("") is None


def test_nothing_that_is_shown_of_an_uplink_has_its_key(rig: KeyRig) -> None:
    assert str(KEY) not in repr(rig.uplink.macs)
