"""The report of a call of `Landing.land`."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgert.central.landing.acceptance import SourceKey
from edgert.central.landing.arrow_rows import LandingBatch


@dataclass(slots=True)
class LandingReport:
    """Result of a call of `land`."""

    versions: dict[SourceKey, int] = field(default_factory=dict)
    """For every stream that was given: all of it up to this sequence is in the tables."""
    rows: int = 0
    refused_rows: int = 0
    refused_batches: int = 0
    ahead_rows: int = 0
    """Rows, of `rows`, whose window begins after tomorrow (UTC)."""
    gaps: int = 0
    commits: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why something went to quarantine, a few of them."""
    held_back: int = 0
    """Openings of epochs that wait, since their gateway has made too many tables in the last hour."""
    left: list[LandingBatch] = field(default_factory=list)
    """Batches that were not reached; they may be given again."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time that the batches of each gateway took."""
    failed: dict[str, str] = field(default_factory=dict)
    """Flows whose own table could not be read or written, and why: what is not in it yet may be given again."""
