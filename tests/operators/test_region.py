"""Operators in a line: ports, entrances, messages, ends, and who is to blame."""

from __future__ import annotations

from collections.abc import Sequence

from edgert.core.batch import Batch, RawBatch
from edgert.flow.on_error import OnError
from edgert.operators.guard import FAILED
from edgert.operators.line import Line
from edgert.operators.logic import Emission, Logic, Message, Now

NOW = Now(0.0, 0.0)


class Adds(Logic):
    """Adds its letter to each row; gives the rows on by one port and a note by another."""

    def __init__(self, letter: str, port: int = 0, last_words: bool = False) -> None:
        super().__init__()
        self.letter, self.port, self.last_words = letter, port, last_words
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
        return (Emission(self.port, Batch(rows, 0.0)),) if self.last_words else ()


def rows(*values: str) -> Batch:
    return Batch([{"time": 0, "source": "", "v": v} for v in values], 0.0)


def values(emissions: Sequence[Emission]) -> list[tuple[int, list[str]]]:
    return [(port, [row["v"] for row in batch.rows]) for port, batch in emissions]


def test_only_the_port_that_feeds_the_next_is_followed_and_the_last_gives_all() -> None:
    line = Line([Adds("a", 1), Adds("b"), Adds("c", 3)], [1, 0])
    assert values(line.process(rows("x", "y"), 0, NOW)) == [
        (3, ["xabc", "yabc"]), (7, ["xabc", "yabc", "xabc", "yabc"]),
    ]  # fmt: skip
    assert [m.topic for m in line.messages] == ["a", "b", "c"]
    assert line.gave == [6, 6, 6], "what goes by other ports is given, too"


def test_inputs_of_the_first_part_and_entrances_of_the_others() -> None:
    parts = [Adds("a"), Adds("b"), Adds("c")]
    line = Line(parts, [0, 0], inputs=2)
    assert [line.entrance(part) for part in range(3)] == [0, 2, 3]
    assert values(line.process(rows("x"), 3, NOW))[0] == (0, ["xc"])
    assert values(line.process(rows("x"), 2, NOW))[0] == (0, ["xbc"])
    line.process(rows("x"), 1, NOW)
    assert [part.seen for part in parts] == [[1], [0, 0], [0, 0, 0]]


def test_the_end_of_each_part_goes_through_those_behind_it() -> None:
    line = Line([Adds("a", last_words=True), Adds("b", last_words=True)], [0])
    assert values(line.flush(NOW)) == [(0, ["end of a b"]), (7, ["end of a b"] * 2), (0, ["end of b "])]


def test_a_part_that_raises_loses_the_rows_at_fault_and_no_others() -> None:
    class Spoils(Adds):
        def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
            return (Emission(0, rows("bad", "good", "well")),)

    parts = [Adds("a"), Spoils("s"), Adds("b")]
    parts[2].repeatable = True
    line = Line(parts, [0, 0])
    out = [row["v"] for port, batch in line.process(rows("x"), 0, NOW) for row in batch.rows if port == 0]
    assert out == ["goodb", "wellb"]
    assert [part.drops[FAILED] for part in parts] == [0, 0, 1]
    assert [guard.failures for guard in line.guards] == [0, 0, 1]
    assert isinstance(line.guards[2].errors[0][1], ValueError)
    assert [m.topic for m in line.messages] == ["a", "b"], "what a try that raised has said is taken back"
    assert line.took == [1, 1, 3]


def test_the_end_of_one_part_that_raises_does_not_keep_the_others_from_theirs() -> None:
    class Mute(Adds):
        def flush(self, now: Now) -> Sequence[Emission]:
            raise ValueError("no")

    line = Line([Mute("a"), Adds("b", last_words=True)], [0])
    assert values(line.flush(NOW)) == [(0, ["end of b "])]
    assert line.drops[FAILED] == 1


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

    line = Line([Singly("a"), Once("second"), Once("first")], [0, 0])
    for guard in line.guards:
        guard.policy = OnError("retry")
    came: list[str] = []
    waiting: list[tuple[int, Batch | RawBatch]] = [(0, rows("first", "second", "third"))]
    turns = 0
    while waiting:
        source, batch = waiting.pop(0)
        came += [v for _, some in values(line.process(batch, source, NOW)) for v in some]
        waiting = [*line.take_held(), *waiting]
        turns += 1
    assert came == ["first", "second", "third"]
    assert turns == 4
    assert (line.took, line.gave) == ([3, 3, 3], [3, 3, 3])
