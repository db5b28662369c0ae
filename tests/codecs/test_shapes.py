"""What is done with learned shapes: kept, forgotten, tried, made anew; with functions that only say what was called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgert.codecs.shapes import (
    COMPILE_EVERY,
    COMPILED,
    MOST_APART,
    SIGHTINGS,
    Body,
    Getter,
    Payloads,
    Reached,
    RowTail,
    ShapeRun,
    Shapes,
    Tail,
    _Compiled,
    function,
)
from edgert.core.batch import Row


class Refusing(RowTail):
    """A tail that takes none of the payloads in `refused`."""

    def __init__(self, *refused: bytes) -> None:
        self.refused = refused


class Log:
    """Makes functions for shapes that are the first letter of a payload, and notes who was given what."""

    def __init__(self) -> None:
        self.compiled: list[tuple[str, bool]] = []
        self.tried: list[tuple[int, int]] = []
        """(first message, last) of each call of a function with a refusing tail."""

    def compile(self, shape: str, captured: frozenset[str], tail: Tail) -> ShapeRun:
        refused = tail.refused if isinstance(tail, Refusing) else ()
        self.compiled.append((shape, bool(refused)))

        def reached(payloads: Sequence[bytes], rows: list[Row], start: int, stop: int) -> int:
            if refused:
                self.tried.append((start, stop))
            for at in range(start, stop):
                if not payloads[at].startswith(shape.encode()):
                    return at
                if payloads[at] in refused:
                    return ~at
                rows.append({"at": at, "fused": bool(refused)})
            return stop

        def run(
            topics: Sequence[str], payloads: Sequence[bytes], captures: object, wall: float, rows: list[Row]
        ) -> Reached:
            start, stop = yield 0
            while True:
                start, stop = yield reached(payloads, rows, start, stop)

        return run


def captures(topic: str) -> Mapping[str, str]:
    return {}


def learned(shapes: Shapes[str], shape: str) -> None:
    for _ in range(SIGHTINGS):
        shapes.learn(shape, {})


def span(shapes: Shapes[str], batch: Payloads, start: int) -> int:
    begun: dict[_Compiled, None] = {}
    reached = shapes._span(batch, start, len(batch.topics), begun)
    for shape in begun:
        shape.end()
    return reached


def run(shapes: Shapes[str], payloads: list[bytes]) -> tuple[int, list[bool]]:
    rows: list[Row] = []
    reached = span(shapes, Payloads([""] * len(payloads), payloads, captures, 0.0, rows), 0)
    assert [row["at"] for row in rows] == list(range(reached)), "each once, in their order"
    return reached, [row["fused"] for row in rows]


def test_a_message_that_the_tail_refuses_becomes_a_row_and_the_others_do_not() -> None:
    log = Log()
    shapes = Shapes[str](log.compile)
    shapes.fuse(Refusing(b"a1"))
    learned(shapes, "a")
    assert run(shapes, [b"a0", b"a1", b"a0", b"a0", b"a1", b"a0", b"b0", b"a0"]) == (
        6, [True, False, True, True, False, True],
    )  # fmt: skip
    assert log.compiled == [("a", True), ("a", False)]


def test_a_tail_that_refuses_all_is_tried_ever_more_rarely_but_again_and_again() -> None:
    log = Log()
    shapes = Shapes[str](log.compile)
    shapes.fuse(Refusing(b"a1"))
    learned(shapes, "a")
    count = 10 * MOST_APART
    assert run(shapes, [b"a1"] * count) == (count, [False] * count)
    assert len(log.tried) < 30
    assert run(shapes, [b"a0"] * 3 + [b"a1", b"a0"]) == (5, [True, True, True, False, True]), "back at once"


def test_beyond_the_bound_the_shape_learned_longest_ago_goes_and_not_too_often() -> None:
    log = Log()
    shapes = Shapes[str](log.compile)
    for n in range(COMPILED):
        learned(shapes, f"{n:02}")
    learned(shapes, "00")
    learned(shapes, "new")
    assert len(log.compiled) == COMPILED, "not so soon"
    for _ in range(COMPILE_EVERY):
        shapes.learn("new", {})
    assert log.compiled[COMPILED:] == [("new", False)]
    learned(shapes, "00")
    assert len(log.compiled) == COMPILED + 1, "still known, since it was seen again"
    for _ in range(COMPILE_EVERY + 1):
        shapes.learn("01", {})
    assert log.compiled[-1] == ("01", False), "that one had gone"


def test_another_tail_takes_over_with_the_next_sighting() -> None:
    log = Log()
    shapes = Shapes[str](log.compile)
    learned(shapes, "a")
    assert run(shapes, [b"a0"]) == (1, [False])
    shapes.fuse(Refusing(b"a1"))
    assert run(shapes, [b"a0"]) == (0, [])
    shapes.learn("a", {})
    assert run(shapes, [b"a0"]) == (1, [True])


class Never(RowTail):
    """A tail that refuses every message, as generated code does."""

    def body(self, values: Mapping[str, Getter]) -> Body:
        return Body(["break"], {})


def test_no_message_is_decoded_twice_where_rows_cannot_be_made_either() -> None:
    """A name that the topic should have given is missing: a broker sent what nobody subscribed to."""
    values = {"time": Getter("t"), "source": Getter("source"), "room": Getter("captures(topics[i])[C0]")}
    made = Shapes[str](lambda shape, captured, tail: function([], values, tail, t=0.0, source="s", C0="room"))
    made.fuse(Never())
    learned(made, "a")
    there: dict[str, dict[str, str]] = {"good": {"room": "x"}, "bad": {}}
    topics = ["good"] * 5 + ["bad"] + ["good"] * 2
    rows: list[Row] = []
    fits_none = []
    index = 0
    while index < len(topics):
        index = span(made, Payloads(topics, [b""] * len(topics), there.__getitem__, 0.0, rows), index)
        fits_none.append(index)
        index += 1
    assert (fits_none, len(rows)) == ([5, 8], 7)
