"""The connection to the central side, and the results that wait for it."""

from __future__ import annotations

from edgert.runtime.metrics.metric import Metric
from edgert.runtime.metrics.readers import at

METRICS = (
    Metric(
        "edgert_central_connected",
        "gauge",
        "",
        "1 while the central broker is connected, else 0.",
        (),
        at("central", "connected"),
    ),
    Metric(
        "edgert_outbox_batches",
        "gauge",
        "batches",
        "Result batches that the collector has not acknowledged yet.",
        (),
        at("central", "outbox_batches"),
    ),
    Metric("edgert_outbox_rows", "gauge", "rows", "Result rows in the outbox.", (), at("central", "outbox_rows")),
    Metric(
        "edgert_outbox_bytes",
        "gauge",
        "bytes",
        "Size of the outbox in the database.",
        (),
        at("central", "outbox_bytes"),
    ),
    Metric(
        "edgert_outbox_quota_bytes",
        "gauge",
        "bytes",
        "How large the outbox may become; what is dropped beyond is counted as dropped at the operator `outbox`.",
        (),
        at("central", "outbox_quota_bytes"),
    ),
    Metric(
        "edgert_outbox_acknowledged_total",
        "counter",
        "batches",
        "Result batches that the collector acknowledged.",
        (),
        at("central", "acknowledged"),
    ),
    Metric(
        "edgert_central_not_authentic_acks_total",
        "counter",
        "messages",
        "Acknowledgements that were refused, as they had no MAC by this gateway's key (`central.mac_key_file`).",
        (),
        at("central", "not_authentic_acks"),
    ),
    Metric(
        "edgert_central_hung_up_total",
        "counter",
        "messages",
        "Messages to the central broker that are not sent again as they are: it closed the connection at them, twice.",
        (),
        at("central", "hung_up"),
    ),
    Metric(
        "edgert_central_too_large_total",
        "counter",
        "messages",
        "Messages that were not sent, since they are larger than the central broker takes.",
        (),
        at("central", "too_large"),
    ),
    Metric(
        "edgert_outbox_lost_by_tables_total",
        "counter",
        "batches",
        "Result batches that the tables had acknowledged and then lacked: the table `gaps` says which.",
        (),
        at("central", "lost_by_tables"),
    ),
    Metric(
        "edgert_uplink_sent_bytes_total",
        "counter",
        "bytes",
        "Results sent to the central broker, repetitions and headers included: what the limits in [uplink] count.",
        (),
        at("central", "sent_bytes"),
    ),
    Metric(
        "edgert_central_last_ack_age_seconds",
        "gauge",
        "seconds",
        "Time since the collector's last acknowledgement; absent before the first.",
        (),
        at("central", "last_ack_age_s"),
    ),
)
