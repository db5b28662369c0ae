"""Messages without a time of their own: theirs is that of their arrival, which a wrong clock makes wrong.

So no window can be foreseen. Message number k of a source carries 2^(k mod 30); what all windows of a source together
must count is known, and that nothing was dropped as late.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.faults.publisher import SOURCES, Difference, Publisher

BITS = 30


class UntimedPublisher(Publisher):
    """As `Publisher`; its `truth` has one window for each source."""

    def _send(self) -> None:
        source = f"s{self.sent % SOURCES}"
        count = self.truth[0.0, source]
        self._client.publish(f"faults/{source}/sense", json.dumps({"bit": 1 << count % BITS}).encode(), qos=1)
        self.truth[0.0, source] += 1
        self.sent += 1


def compare(truth: Mapping[tuple[float, str], int], rows: Iterable[Mapping[str, Any]]) -> Difference:
    """`rows`: all that landed and count."""
    counts: Counter[str] = Counter()
    bits: Counter[str] = Counter()
    for row in rows:
        counts[row["source"]] += row["n"] or 0
        bits[row["source"]] += int(row["bits"] or 0)
    lost = doubled = 0
    wrong = []
    for (_, source), want in sorted(truth.items()):
        got, sum_ = counts[source], sum(1 << k % BITS for k in range(want))
        if got == want and bits[source] == sum_:
            continue
        lost += max(0, want - got) or int(got == want)
        doubled += max(0, got - want) or int(got == want)
        wrong.append(f"{source}: {got} messages instead of {want}, sum off by {bits[source] - sum_}")
    return Difference(lost, doubled, tuple(wrong))
