"""The settings of the sensors' broker as an MQTT client takes them."""

from __future__ import annotations

from edgert.core.clock import Clock
from edgert.core.settings.gateway import Sensors
from edgert.mqtt.clients.credentials import read_password, tls_context
from edgert.mqtt.clients.transport import BrokerAddress, Handlers, MqttClient, Tls
from edgert.mqtt.session.session import SessionOptions


def sensors_client(settings: Sensors, client_id: str, handlers: Handlers, clock: Clock) -> MqttClient:
    """Raises `EdgertError` naming the file at fault: better at the start than once a second in the log."""
    return MqttClient(
        BrokerAddress(settings.host, settings.port, _tls(settings)),
        SessionOptions(
            client_id,
            protocol=settings.protocol,
            keep_alive_s=settings.keep_alive_s,
            username=settings.username or None,
            password=_password(settings),
            max_packet_bytes=settings.max_packet_bytes,
        ),
        handlers,
        latency_budget_s=settings.latency_budget_s,
        clock=clock.monotonic,
    )


def _password(settings: Sensors) -> bytes | None:
    text = read_password(settings.password_file, "sensors") if settings.username else None
    return None if text is None else text.encode()


def _tls(settings: Sensors) -> Tls | None:
    if settings.tls:
        tls_context(settings, "sensors")  # which raises
    return Tls(settings.ca_file, settings.cert_file, settings.key_file) if settings.tls else None
