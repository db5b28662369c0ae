"""Several operators as one instance: ports, entrances, branches, messages, ends, and who is to blame."""

from __future__ import annotations

from collections.abc import Sequence

from edgert.core.batch import Batch, RawBatch
from edgert.flow.options.on_error import OnError
from edgert.operators.base.error_boundary import FAILED
from edgert.operators.base.logic import Emission, Logic, Message, Now
from edgert.operators.fusion.region import Region, StageEdge
from tests.named import named

NOW = Now(0.0, 0.0)


class Adds(Logic):
    """Adds its letter to each row; gives the rows on by one port and a note by another."""

    def __init__(self, letter: str, port: int = 0, emits_at_end: bool = False) -> None:
        super().__init__()
        self.letter, self.port, self.emits_at_end = letter, port, emits_at_end
        self.seen: list[int] = []

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        self.seen.append(source)
        if any(row["v"] == "bad" for row in batch.rows):
            raise ValueError("no")
        self.messages.append(Message(self.letter, b""))
        rows = [{**row, "v": row["v"] + self.letter} for row in batch.rows]
        return Emission(self.port, Batch(rows, batch.arrival)), Emission(7, Batch(rows * 2, batch.arrival))

    def flush(self, now: Now) -> Sequence[Emission]:
        rows = [{"time": 0, "source": "", "v": f"end of {self.letter} "}]
        return (Emission(self.port, Batch(rows, 0.0)),) if self.emits_at_end else ()


def line(parts: Sequence[Logic], ports: Sequence[int], exits: Sequence[int] = (), inputs: int = 1) -> Region:
    """Each feeds the next by the port that is given, and the last one feeds what is behind the region."""
    edges = [StageEdge(part, port, part + 1, 0) for part, port in enumerate(ports)]
    return Region(parts, edges, [(len(parts) - 1, port) for port in exits], inputs)


def rows(*values: str) -> Batch:
    return Batch([{"time": 0, "source": "", "v": v} for v in values], 0.0)


def values(emissions: Sequence[Emission]) -> list[tuple[int, list[str]]]:
    return [(port, [row["v"] for row in batch.rows]) for port, batch in emissions]


def test_only_the_port_that_feeds_the_next_is_followed_and_the_last_gives_all() -> None:
    region = line([Adds("a", 1), Adds("b"), Adds("c", 3)], [1, 0], [3, 7])
    assert values(region.process(rows("x", "y"), 0, NOW)) == [
        (0, ["xabc", "yabc"]), (1, ["xabc", "yabc", "xabc", "yabc"]),
    ]  # fmt: skip
    assert [m.topic for m in named(region.messages)] == ["a", "b", "c"]
    assert region.left == 0
    assert region.gave == [6, 6, 6], "what goes by other ports is given, too"


def test_inputs_of_the_first_part_and_entrances_of_the_others() -> None:
    parts = [Adds("a"), Adds("b"), Adds("c")]
    region = line(parts, [0, 0], [0], inputs=2)
    assert [list(region.entrances(part)) for part in range(3)] == [[0, 1], [2], [3]]
    assert values(region.process(rows("x"), 3, NOW)) == [(0, ["xc"])]
    assert values(region.process(rows("x"), 2, NOW)) == [(0, ["xbc"])]
    region.process(rows("x"), 1, NOW)
    assert [part.seen for part in parts] == [[1], [0, 0], [0, 0, 0]]


def test_the_end_of_each_part_goes_through_those_behind_it() -> None:
    region = line([Adds("a", emits_at_end=True), Adds("b", emits_at_end=True)], [0], [0, 7])
    assert values(region.flush(NOW)) == [(0, ["end of a b"]), (1, ["end of a b"] * 2), (0, ["end of b "])]


def test_a_part_that_raises_loses_the_rows_at_fault_and_no_others() -> None:
    class Spoils(Adds):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            return (Emission(0, rows("bad", "good", "well")),)

    parts = [Adds("a"), Spoils("s"), Adds("b")]
    parts[2].repeatable = True
    region = line(parts, [0, 0], [0])
    out = [row["v"] for _, batch in region.process(rows("x"), 0, NOW) for row in batch.rows]
    assert out == ["goodb", "wellb"]
    assert [part.drops[FAILED] for part in parts] == [0, 0, 1]
    assert [boundary.failures for boundary in region.boundaries] == [0, 0, 1]
    assert isinstance(region.boundaries[2].errors[0][1], ValueError)
    assert [m.topic for m in named(region.messages)] == ["a", "b"], "what a try that raised has said is taken back"
    assert region.took == [1, 1, 3]


def test_the_end_of_one_part_that_raises_does_not_keep_the_others_from_theirs() -> None:
    class Mute(Adds):
        def flush(self, now: Now) -> Sequence[Emission]:
            raise ValueError("no")

    region = line([Mute("a"), Adds("b", emits_at_end=True)], [0], [0])
    assert values(region.flush(NOW)) == [(0, ["end of b "])]
    assert region.drops[FAILED] == 1


def test_nothing_overtakes_rows_that_wait_at_two_parts_to_be_tried_again() -> None:
    class Singly(Adds):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            assert isinstance(batch, Batch)
            return [Emission(0, Batch([row], 0.0)) for row in batch.rows]

    class Once(Logic):
        """Raises on one value the first time."""

        def __init__(self, value: str) -> None:
            super().__init__()
            self.value = value

        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            assert isinstance(batch, Batch)
            if batch.rows[0]["v"] == self.value:
                self.value = ""
                raise ValueError("not now")
            return (Emission(0, batch),)

    region = line([Singly("a"), Once("second"), Once("first")], [0, 0], [0])
    for boundary in region.boundaries:
        boundary.policy = OnError("retry")
    came: list[str] = []
    waiting: list[tuple[int, Batch | RawBatch]] = [(0, rows("first", "second", "third"))]
    turns = 0
    while waiting:
        source, batch = waiting.pop(0)
        came += [v for _, some in values(region.process(batch, source, NOW)) for v in some]
        waiting = [*region.take_held(0), *waiting]
        turns += 1
    assert came == ["first", "second", "third"]
    assert turns == 4
    assert (region.took, region.gave) == ([3, 3, 3], [3, 3, 3])


def diamond() -> tuple[list[Adds], Region]:
    """a feeds b, c and d (which is an end); b and c feed j, whose rows leave."""
    parts = [Adds(letter) for letter in "abcdj"]
    for part in parts:
        part.repeatable = True
    edges = [
        StageEdge(0, 0, 1, 0),
        StageEdge(0, 0, 2, 0),
        StageEdge(0, 0, 3, 0),
        StageEdge(1, 0, 4, 0),
        StageEdge(2, 0, 4, 1),
    ]
    return parts, Region(parts, edges, [(1, 7), (4, 0)], inputs=1)


def test_branches_part_and_meet_again_each_part_after_all_that_feed_it() -> None:
    parts, region = diamond()
    out = values(region.process(rows("x"), 0, NOW))
    assert out == [(0, ["xab", "xab"]), (1, ["xabj"]), (1, ["xacj"])]
    assert parts[4].seen == [0, 1], "by the input of each"
    assert [m.topic for m in named(region.messages)] == ["a", "b", "c", "d", "j", "j"]
    assert region.took == [1, 1, 1, 1, 2]
    assert region.left == 1, "what came to d, behind which nothing is"


def test_a_part_that_several_feed_has_an_entrance_for_each_input() -> None:
    parts, region = diamond()
    assert [list(region.entrances(part)) for part in range(5)] == [[0], [1], [2], [3], [4, 5]]
    assert values(region.process(rows("x"), 5, NOW)) == [(1, ["xj"])]
    assert parts[4].seen == [1]
    assert values(region.process(rows("x"), 2, NOW)) == [(1, ["xcj"])]


def test_a_row_that_is_tried_again_comes_back_by_the_input_it_came_by() -> None:
    _, region = diamond()
    region.boundaries[4].policy = OnError("retry")
    region.process(rows("bad"), 5, NOW)
    assert region.took[4] == 0
    ((source, batch),) = region.take_held(0)
    assert isinstance(batch, Batch)
    assert (source, [row["v"] for row in batch.rows]) == (5, ["bad"])
