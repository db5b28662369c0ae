"""The states of a connection, and what leads from one to the next."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    IDLE = "idle"
    CONNECTING = "connecting"
    CONNECTED = "connected"


class Input(Enum):
    CONNECT = "connect"
    ACCEPTED = "CONNACK, accepted"
    REFUSED = "CONNACK, refused"
    TRAFFIC = "any other packet"
    LEAVE = "disconnect"
    LOST = "connection lost"


TRANSITIONS: dict[tuple[State, Input], State] = {
    (State.IDLE, Input.CONNECT): State.CONNECTING,
    (State.CONNECTING, Input.ACCEPTED): State.CONNECTED,
    (State.CONNECTING, Input.REFUSED): State.IDLE,
    (State.CONNECTING, Input.LEAVE): State.IDLE,
    (State.CONNECTING, Input.LOST): State.IDLE,
    (State.CONNECTED, Input.TRAFFIC): State.CONNECTED,
    (State.CONNECTED, Input.LEAVE): State.IDLE,
    (State.CONNECTED, Input.LOST): State.IDLE,
}
"""Transitions. All others are against the protocol: a packet before CONNACK, a second CONNACK, ..."""
