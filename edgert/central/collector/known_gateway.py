"""Counters of the collector, and its record of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from edgert.central.landing.acceptance import SourceKey
from edgert.central.landing.report import LandingReport
from edgert.core.results.results import MOST_STREAMS as MOST_STREAMS_OF_EPOCH
from edgert.core.results.results import Acknowledgement, EpochHello

_STREAMS_PER_FLOW: Final = 64
"""Streams of one gateway's flow that are remembered at most, those of the greatest epochs."""
_STREAMS_PER_GATEWAY: Final = 4_096
"""Streams of one gateway that are remembered at most; each flow has at least those of its greatest epoch, from which a
new card goes on."""
MOST_NEWS: Final = 4_096
"""Streams that one acknowledgement names beside those of the greatest epochs, at most."""


@dataclass(slots=True)
class GatewayCounters:
    """Counters since the start of the collector."""

    messages: int = 0
    rows: int = 0
    commits: int = 0
    refused_rows: int = 0
    refused_batches: int = 0
    ahead_rows: int = 0
    """Rows, of `rows`, whose window begins after tomorrow (UTC): some clock is or was wrong. They land, since the wrong
    clock may be the collector's own."""
    gaps: int = 0
    duplicates: int = 0
    malformed: int = 0
    malformed_not_kept: int = 0
    """Malformed messages that are not in quarantine, and will not be."""
    held: int = 0
    expired: int = 0
    not_held: int = 0
    broken_results: int = 0
    """Results in pieces of which one did not come: their gateways send them again."""
    refused_flows: int = 0
    held_back: int = 0
    """Openings of epochs or tables that wait, since their gateway began too many in the last hour."""
    bad_topics: int = 0
    """Messages on a topic where no gateway of this fleet publishes results. They are not kept."""
    not_authentic: int = 0
    """Messages that were refused for want of a MAC by the key of the gateway that their topic names."""
    newest_not_authentic: str = ""
    """Topic of the newest of them, and why it was refused."""
    unsigned: int = 0
    """Messages without a MAC where there is a key, whether they were refused or not."""
    unchecked: int = 0
    """Messages with a MAC that was not checked, as there is no key."""
    unsaid: int = 0
    """Streams and answers that were not acknowledged, as too much waited or the broker takes no message so large. Their
    gateways ask again."""
    newest_unsaid: str = ""
    """The gateway of the newest of them, why, and what to do."""
    unsaid_gateways: int = 0
    """Now: gateways whose acknowledgements wait, since nothing can be sent to them."""
    failures: int = 0
    stuck_flows: int = 0
    """Now: flows whose landing table cannot be used."""
    last_error: str = ""

    def landed(self, report: LandingReport) -> None:
        """Adds what a call of the landing did."""
        self.rows += report.rows
        self.commits += report.commits
        self.refused_rows += report.refused_rows
        self.refused_batches += report.refused_batches
        self.ahead_rows += report.ahead_rows
        self.gaps += report.gaps
        self.held_back += report.held_back

    def plain(self) -> dict[str, Any]:
        """Returns the gateway in JSON types."""
        return asdict(self)


@dataclass(slots=True)
class KnownGateway:
    partition: str = ""
    """The partition in the topic of the gateway's last result."""
    acks: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)
    """Flow -> (epoch, stream) -> sequence."""
    news: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """(flow, epoch, stream) -> sequence: what is told once, however old its epoch: what landed or was asked for."""
    touched: set[str] = field(default_factory=set)
    """Flows of `news`, and those of which more was to be told than is."""
    flows: set[str] = field(default_factory=set)
    answers: dict[str, bytes] = field(default_factory=dict)
    """Flows whose hello the next acknowledgement answers -> the hello's token."""
    refused: bool = False

    def note(self, known: dict[SourceKey, int]) -> None:
        """Takes the landed numbers of this gateway."""
        for (_, flow, epoch, stream), version in known.items():
            self.acknowledge(flow, epoch, stream, version)
            self.flows.add(flow)

    def tell(self, flow: str, epoch: int, stream: int, version: int) -> None:
        """Works as `acknowledge`, and the next acknowledgement names it in any case, if these are not too many
        already."""
        self.acknowledge(flow, epoch, stream, version)
        self.touched.add(flow)
        if len(self.news) < MOST_NEWS:
            self.news[(flow, epoch, stream)] = version

    def answer(self, hello: EpochHello, found: Mapping[tuple[int, int], int]) -> bool:
        """The next acknowledgement answers `hello`: it names what is `found` in the tables, (epoch, stream) ->
        sequence, and what is known of the epochs that the hello names. False if that is too much for one, and the
        gateway has to ask again: an answer without a stream would say that nothing of it has landed."""
        known = self.acks.get(hello.flow, {})
        named = {stream: n for stream, n in known.items() if stream[0] in hello.epochs} | dict(found)
        greatest = max((epoch for epoch, _ in {*known, *named}), default=0)
        older = {stream: n for stream, n in named.items() if stream[0] != greatest}
        if len(self.news) + len(older) > MOST_NEWS:
            return False
        for (epoch, stream), version in named.items():
            self.acknowledge(hello.flow, epoch, stream, version)
        self.news |= {(hello.flow, *stream): n for stream, n in older.items()}
        self.answers[hello.flow] = hello.token
        return True

    def acknowledge(self, flow: str, epoch: int, stream: int, version: int) -> None:
        """A stream is in the tables up to `version`; of too many those of the oldest epochs are named no more."""
        acks = self.acks.setdefault(flow, {})
        acks[(epoch, stream)] = version
        most = min(_STREAMS_PER_FLOW, max(MOST_STREAMS_OF_EPOCH, _STREAMS_PER_GATEWAY // len(self.acks)))
        for old in sorted(acks)[:-most]:
            del acks[old]

    def acknowledgement(self, name: str, collector: str) -> Acknowledgement:
        """The next acknowledgement for this gateway: what is new, and the greatest epoch of each flow that this is
        about. What is told once is told with it."""
        answers = tuple(sorted(self.answers))
        tokens = {flow: token for flow, token in self.answers.items() if token}
        acks: dict[tuple[str, int, int], int] = {}
        for flow in self.touched.union(answers):
            streams = self.acks.get(flow, {})
            greatest = max((epoch for epoch, _ in streams), default=0)
            acks |= {(flow, *stream): n for stream, n in streams.items() if stream[0] == greatest}
        acks |= self.news
        self.news, self.touched, self.answers = {}, set(), {}
        return Acknowledgement(gateway=name, collector=collector, acks=acks, answers=answers, tokens=tokens)
