"""Which seeds make which kind of walk; all others make plain ones."""

from __future__ import annotations

from typing import Final

AT_LEAST_ONCE: Final = range(1_000, 2_000)
"""With these seeds one of the flows is."""
RESULTS_FLOW: Final = range(2_000, 3_000)
"""With these results land all the time, late ones too: so the fleet job has something to do."""
ROTS: Final = range(3_000, 4_000)
"""With these the card does."""
BLOCKS: Final = range(4_000, 5_000)
"""With these operators are blocked for long."""
SLOTS: Final = range(5_000, 6_000)
"""With these flows run in slots, which die and sleep."""
QUOTA: Final = range(6_000, 7_000)
"""With these the outbox has little room."""
EQUAL: Final = range(7_000, 8_000)
"""With these only packet ids tell messages apart, and what is under way is cut off often. At QoS 2; of four seeds
the second is at QoS 1, and sessions get lost with the last."""
CARDS: Final = range(8_000, 9_000)
"""With these the card rots, and older ones come back, while results land all the time."""
DROPPING: Final = range(9_000, 10_000)
"""With these flows say what they drop, while results land all the time; with every other the card rots."""
FILTERS: Final = range(10_000, 11_000)
"""With these new versions read other filters, which bring the same messages."""
LAST: Final = FILTERS[-1]
