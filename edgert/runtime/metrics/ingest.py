"""Metrics of input from the sensors' broker."""

from __future__ import annotations

from edgert.runtime.metrics.metric import Metric
from edgert.runtime.metrics.readers import at

METRICS = (
    Metric(
        "edgert_ingest_connected",
        "gauge",
        "",
        "1 while the sensors' broker is connected, else 0.",
        (),
        at("ingest", "connected"),
    ),
    Metric(
        "edgert_ingest_messages_total",
        "counter",
        "messages",
        "Messages received from the sensors' broker.",
        (),
        at("ingest", "messages"),
    ),
    Metric(
        "edgert_ingest_bytes_total",
        "counter",
        "bytes",
        "Bytes received from the sensors' broker.",
        (),
        at("ingest", "bytes"),
    ),
    Metric(
        "edgert_ingest_unacknowledged_messages",
        "gauge",
        "messages",
        "Messages received and not yet acknowledged: no checkpoint covers them yet.",
        (),
        at("ingest", "unacknowledged"),
    ),
    Metric(
        "edgert_ingest_reconnects_total",
        "counter",
        "connections",
        "Connections to the sensors' broker made after the first one.",
        (),
        at("ingest", "reconnects"),
    ),
    Metric(
        "edgert_ingest_sessions_lost_total",
        "counter",
        "sessions",
        "Connections on which the broker had no session for us: what it held is lost to us.",
        (),
        at("ingest", "sessions_lost"),
    ),
    Metric(
        "edgert_ingest_unknown_sessions_total",
        "counter",
        "sessions",
        "Sessions at the sensors' broker of which the data folder knew nothing, or too little: it is gone or old.",
        (),
        at("ingest", "unknown_sessions"),
    ),
    Metric(
        "edgert_ingest_broker_window_messages",
        "gauge",
        "messages",
        "So many the sensors' broker sends before some are acknowledged; 0: more than ever waited.",
        (),
        at("ingest", "window"),
    ),
    Metric(
        "edgert_ingest_window_checkpoints_total",
        "counter",
        "checkpoints",
        "Asked for since half of that was used, or to find it out: each costs writes.",
        (),
        at("ingest", "window_checkpoints"),
    ),
    Metric(
        "edgert_ingest_redelivered_messages_total",
        "counter",
        "messages",
        "Messages that the broker delivered again and that were told from new ones.",
        (),
        at("ingest", "redelivered"),
    ),
    Metric(
        "edgert_ingest_ambiguous_messages_total",
        "counter",
        "messages",
        "Messages taken for redeliveries that may have been new, equal ones; they were dropped.",
        (),
        at("ingest", "ambiguous"),
    ),
    Metric(
        "edgert_ingest_perhaps_repeated_messages_total",
        "counter",
        "messages",
        "Messages that the broker delivered again under packet ids of which the card's record was damaged, or has "
        "known nothing since a broker had no session: taken as new, though they may have been counted before.",
        (),
        at("ingest", "perhaps_repeated"),
    ),
    Metric(
        "edgert_ingest_broker_dropped_messages_total",
        "counter",
        "messages",
        "Messages that the sensors' broker dropped from full queues, by its own count: of any of its clients, and also "
        "while the gateway was away. Absent while the broker does not tell (`sensors.drops_topic`).",
        (),
        at("ingest", "broker_dropped"),
    ),
)
