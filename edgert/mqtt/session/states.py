"""The states of a connection, and what leads from one to the next."""

from __future__ import annotations

from enum import Enum


class SessionState(Enum):
    IDLE = "idle"
    CONNECTING = "connecting"
    CONNECTED = "connected"


class SessionInput(Enum):
    CONNECT = "connect"
    ACCEPTED = "CONNACK, accepted"
    REFUSED = "CONNACK, refused"
    TRAFFIC = "any other packet"
    LEAVE = "disconnect"
    LOST = "connection lost"


TRANSITIONS: dict[tuple[SessionState, SessionInput], SessionState] = {
    (SessionState.IDLE, SessionInput.CONNECT): SessionState.CONNECTING,
    (SessionState.CONNECTING, SessionInput.ACCEPTED): SessionState.CONNECTED,
    (SessionState.CONNECTING, SessionInput.REFUSED): SessionState.IDLE,
    (SessionState.CONNECTING, SessionInput.LEAVE): SessionState.IDLE,
    (SessionState.CONNECTING, SessionInput.LOST): SessionState.IDLE,
    (SessionState.CONNECTED, SessionInput.TRAFFIC): SessionState.CONNECTED,
    (SessionState.CONNECTED, SessionInput.LEAVE): SessionState.IDLE,
    (SessionState.CONNECTED, SessionInput.LOST): SessionState.IDLE,
}
"""Transitions. All others are against the protocol: a packet before CONNACK, a second CONNACK, ..."""
