"""Learns the shapes of messages from the general decoder, and tries compiled decoders for them first."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from types import FunctionType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from edgert.codecs.base import BAD_BYTES, Captures, Codec, Decoded, decode_into
from edgert.core.batch import Row
from edgert.core.text.topic_template import MAX_KNOWN_LENGTH

Shape = TypeVar("Shape", bound=Hashable)
Reached = Generator[int, tuple[int, int], None]
"""A generator that is sent (start, stop), and gives the index i of the first message from `start` that does not fit, or
`stop`; ~i (which is negative) if it fits and the `Tail` refuses it. Each message before it has appended one row to the
batch's, or went wherever the tail sends it. Work that is done once per batch is done before the first message, and when
the generator is closed."""
ShapeRun = Callable[[Sequence[str], Sequence[bytes], Captures, float, list[Row]], Reached]
"""(topics, payloads, captures, wall, rows) of a batch."""
SIGHTINGS: Final = 3
"""Packs of a shape before it is worth a function of its own (compiling takes about a millisecond)."""
ACTIVE: Final = 4
"""Shapes that are tried on a message, the last that fitted first: each that does not fit costs about a microsecond."""
COMPILED: Final = 32
"""Shapes whose functions are kept; then the one that was learned longest ago goes."""
SHORT: Final = 250
"""Bytes of code."""
COMPILE_EVERY: Final = 64
"""Messages looked at, at least, between two compilations once there are so many, for each `SHORT` of the code that was
compiled last: a publisher who changes shape all the time must not have us compile all the time."""
MOST_APART: Final = 1024
"""Messages that go by rows, at most, before the tail is tried again after it refused."""
SEEN: Final = 256
EAGER: Final = 64
"""Messages without a shape of use until only every `RARE`th is looked at: looking costs as much as decoding."""
RARE: Final = 16
PATIENCE: Final = 64
"""Misses beyond the hits after which the active shapes rest: the stream has none, or others."""


_FUNCTION: Final = """
def run(topics, payloads, captures, wall, rows):
    {setup}
    done = 0
    start, stop = yield 0
    try:
        while True:
            i, decoded = start, -1
            if {refuses}:
                start, stop = yield ~start
                continue
            try:
                for i in range(start, stop):
                    {decode}
                    decoded = i
                    {tail}
                else:
                    i = stop
            except MISFIT:
                pass
            finally:
                done += i - start
            start, stop = yield (~i if decoded == i else i)
    finally:
        {finish}
"""


class Getter(NamedTuple):
    """How the generated code names a field of the message at hand: an expression, to be evaluated once."""

    code: str
    sure: bool = False
    """Never null."""
    finite: bool = False
    """Always a float, and finite."""
    captured: str = ""
    """The name of the topic's level that it is."""


OfTopic = Callable[[Mapping[str, str]], Any]
"""Makes values that follow from the captured parts of a topic alone."""
KNOWN_TOPICS: Final = 10_000
"""Topics whose values are remembered, at most; long topics are not."""


@dataclass(frozen=True, slots=True)
class Body:
    """Generated lines of a tail, and the constants that they name."""

    lines: Sequence[str]
    """For one message. `continue` ends it, `break` refuses it: it becomes a row. Names of fields may be text of a
    payload: they must come in as constants."""
    constants: Mapping[str, Any]
    setup: Sequence[str] = ()
    """Lines before the first message of a batch."""
    refuses: str = "False"
    """An expression: whether no message is taken from now on."""
    finish: Sequence[str] = ()
    """Lines behind the last message of a batch; `done` is how many were taken."""
    of_topic: Mapping[str, OfTopic] = field(default_factory=dict)
    """Values by local variable, remembered for each topic. One that raises refuses the message."""
    known: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Where; bounded, since a hostile publisher may use endless topics."""


class Tail(Protocol):
    """Generated lines for a message's values, behind those of the decoder in the same function."""

    @property
    def misfits(self) -> tuple[type[Exception], ...]:
        """Exceptions by which its lines refuse a message, before they have changed anything."""
        ...

    def body(self, values: Mapping[str, Getter]) -> Body:
        """The lines. `values` by field, in the order in which a row would have them, `time` and `source` among them."""
        ...


@runtime_checkable
class Fusible(Protocol):
    """A codec whose function can go on with what stands behind the decoder: see `fuses`."""

    def fuse(self, tail: Tail) -> None:
        """From now on messages of learned shapes go to the `tail`, as it is now, and only the others become rows."""
        ...


def fuses(codec: object) -> bool:
    """True if it is `Fusible` by its own class: one that builds on another and decodes otherwise is not."""
    return "fuse" in vars(type(codec))


class RowTail:
    """The tail of a codec by itself: each message becomes a row."""

    misfits = ()

    def body(self, values: Mapping[str, Getter]) -> Body:
        """Implements `Tail`."""
        code = {name: value.code for name, value in values.items()}
        shown, names = row_display(code)
        return Body([f"append({shown})"], names, setup=["append = rows.append"])


def row_display(code: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """An expression that makes a row of values whose `code` is given by field, and the constants that it names."""
    items = ("'time'" if name == "time" else "'source'" if name == "source" else f"K{k}" for k, name in enumerate(code))
    shown = ", ".join(f"{item}: {value}" for item, value in zip(items, code.values(), strict=True))
    return f"{{{shown}}}", {f"K{k}": name for k, name in enumerate(code) if name not in ("time", "source")}


def captured_values(captured: frozenset[str]) -> dict[str, Getter]:
    """Values that a topic gives to rows, as `function` brings them."""
    others = enumerate(sorted(captured - {"time", "source"}))
    values = {name: Getter(f"c{number}", sure=True, captured=name) for number, name in others}
    return {"source": Getter("source", sure=True, captured="source"), **values} if "source" in captured else values


def function(
    lines: Sequence[str], values: Mapping[str, Getter], tail: Tail, captured: frozenset[str] = frozenset(), **more: Any
) -> ShapeRun:
    """The `ShapeRun` whose body for one message is `lines`, which bring the `values` that are not `captured`, and what
    the `tail` makes of all.

    They see `more` constants, and must hold no text of a payload. `break` is for a message that does not fit; whatever
    the decoder raises for one says the same.
    """
    after = tail.body(values)
    first, constants = _of_topic(captured_values(captured), after)
    scope = {"MISFIT": (*BAD_BYTES, KeyError, *tail.misfits), **more, **constants, **after.constants}
    text = _FUNCTION.format(
        setup="\n    ".join(after.setup) or "pass",
        refuses=after.refuses,
        decode="\n                    ".join([*first, *lines]),
        tail="\n                    ".join(after.lines),
        finish="\n        ".join(after.finish) or "pass",
    )
    exec(text, scope)  # noqa: S102 - our own text, see above
    return cast(ShapeRun, scope["run"])


def _of_topic(captured: Mapping[str, Getter], after: Body) -> tuple[list[str], dict[str, Any]]:
    """Lines that bring what is `captured`, and what follows from it; and the constants that they name."""
    if not captured and not after.of_topic:
        return [], {}
    names = {f"C{number}": name for number, name in enumerate(captured)}
    if not after.of_topic:
        lines = [f"{value.code} = captured[{name}]" for name, value in zip(names, captured.values(), strict=True)]
        return ["captured = captures(topics[i])", *lines], names
    known = after.known
    functions: list[OfTopic] = [*map(itemgetter, captured), *after.of_topic.values()]

    def remember(topic: str, levels: Mapping[str, str]) -> tuple[Any, ...]:
        found = tuple(made(levels) for made in functions)
        if len(topic) <= MAX_KNOWN_LENGTH:
            if len(known) >= KNOWN_TOPICS:
                known.clear()
            known[topic] = found
        return found

    variables = ", ".join([*(value.code for value in captured.values()), *after.of_topic])
    lines = ["found = find(topics[i])", "if found is None:", "    found = remember(topics[i], captures(topics[i]))"]
    return [*lines, f"{variables}, = found"], {"find": known.get, "remember": remember}


class Payloads(NamedTuple):
    """Messages that are decoded at once: see `ShapeRun`."""

    topics: Sequence[str]
    payloads: Sequence[bytes]
    captures: Captures
    wall: float
    rows: list[Row]


@dataclass(slots=True, eq=False)
class _Compiled:
    """The functions of one shape."""

    run: ShapeRun
    by_rows: Callable[[], ShapeRun]
    """Makes the function whose messages become rows, for those that the tail of `run` refuses."""
    plain: ShapeRun | None = None
    apart: int = 1
    """Messages that go by rows after the next refusal: more after each, so that a stream which the tail always refuses
    (a clock that runs behind makes all of it ahead of time) costs what it would without."""
    running: Reached | None = None
    running_plain: Reached | None = None
    """Both for one batch."""

    @property
    def length(self) -> int:
        """Bytes of the function's code."""
        return len(self.run.__code__.co_code) if isinstance(self.run, FunctionType) else 0

    def take(self, batch: Payloads, start: int, stop: int) -> int:
        """The first message that does not fit, by index. Those before are rows, or went where the tail sends them."""
        if self.running is None:
            self.running = _begun(self.run, batch)
        reached = self.running.send((start, stop))
        if reached >= 0:
            if reached > start:
                self.apart = 1
            return reached
        at = ~reached
        if at > start:
            self.apart = 1
        end = min(stop, at + self.apart)
        self.apart = min(2 * self.apart, MOST_APART)
        if self.running_plain is None:
            self.plain = self.plain or self.by_rows()
            self.running_plain = _begun(self.plain, batch)
        reached = self.running_plain.send((at, end))
        return reached if reached >= 0 else ~reached  # what it took until then are rows already

    def end(self) -> None:
        """The batch is decoded."""
        running, plain = self.running, self.running_plain
        self.running = self.running_plain = None
        try:
            if plain is not None:
                plain.close()
        finally:
            if running is not None:
                running.close()


def _begun(run: ShapeRun, batch: Payloads) -> Reached:
    reached = run(*batch)
    next(reached)
    return reached


class Shapes(Generic[Shape]):
    """The shapes of one codec's messages. `compile_shape` makes the function for a shape, the names captured, and what
    becomes of the values."""

    def __init__(self, compile_shape: Callable[[Shape, frozenset[str], Tail], ShapeRun]) -> None:
        self._tail: Tail = RowTail()
        self._compile = compile_shape
        self._seen: dict[Shape, int] = {}
        self._compiled: dict[Shape, _Compiled] = {}
        self._active: list[_Compiled] = []
        self._looked = 0
        """Messages learned from since the last compilation."""
        self._dear = 1
        """How much longer than for a short function the next compilation waits."""
        self._misses = 0
        self._fruitless = 0

    def fuse(self, tail: Tail) -> None:
        """Implements `Fusible`. What was compiled for another tail, or for this one as it was, is compiled anew when it
        is next seen."""
        self._tail = tail
        self._seen.update(dict.fromkeys(self._compiled, SIGHTINGS - 1))
        self._compiled.clear()
        self._active.clear()

    def decode_batch(
        self, codec: Codec, topics: Sequence[str], payloads: Sequence[bytes], captures: Captures, wall: float
    ) -> Decoded:
        """`Codec.decode_batch_untrusted`: by shapes where they fit, else by the `codec`, message by message."""
        decoded = Decoded()
        batch = Payloads(topics, payloads, captures, wall, decoded.rows)
        begun: dict[_Compiled, None] = {}
        total = len(payloads)
        index = 0
        try:
            while index < total:
                index = self._span(batch, index, total, begun)
                if index < total:
                    decode_into(decoded, codec, index, topics[index], payloads[index], captures(topics[index]), wall)
                    index += 1
        finally:
            for shape in begun:
                shape.end()
        return decoded

    def _span(self, batch: Payloads, start: int, stop: int, begun: dict[_Compiled, None]) -> int:
        """Decodes messages from `start` with any shape that fits. Returns an index as `Reached` does, but never a
        negative one. The message at the index returned (if below `stop`) fits none. Shapes that were tried are
        `begun`."""
        index = start
        fitted = True
        while fitted and index < stop:
            fitted = False
            for rank, shape in enumerate(self._active):
                begun[shape] = None
                reached = shape.take(batch, index, stop)
                if reached > index:
                    index, fitted = reached, True
                    if rank:
                        self._active.insert(0, self._active.pop(rank))
                    break
        self._misses = max(0, self._misses - (index - start))
        if index < stop and self._active:
            self._misses += 1
            if self._misses > PATIENCE:
                self._active.clear()
                self._misses = 0
        return index

    def due(self) -> bool:
        """True if the message that was just decoded the tolerant way should be learned from."""
        self._fruitless += 1
        return self._fruitless <= EAGER or self._fruitless % RARE == 0

    def learn(self, shape: Shape, captures: Mapping[str, str]) -> None:
        """Note the `shape` of a message that gave one row and no fault; one seen often enough becomes active."""
        self._looked += 1
        if len(self._seen) >= SEEN:
            self._seen.clear()
        sightings = self._seen[shape] = self._seen.get(shape, 0) + 1
        if sightings < SIGHTINGS:
            return
        function = self._compiled.pop(shape, None)
        if function is None:
            if len(self._compiled) >= COMPILED:
                if self._looked < COMPILE_EVERY * self._dear:
                    return
                del self._compiled[next(iter(self._compiled))]
            function = self._make(shape, frozenset(captures))
            self._looked = 0
            self._dear = max(1, function.length // SHORT)
        del self._seen[shape]
        self._compiled[shape] = function
        if function not in self._active:
            self._fruitless = 0
            self._active = [function, *self._active[: ACTIVE - 1]]

    def _make(self, shape: Shape, captured: frozenset[str]) -> _Compiled:
        def by_rows() -> ShapeRun:
            return self._compile(shape, captured, RowTail())

        try:
            run = self._compile(shape, captured, self._tail)
        except (SyntaxError, RecursionError, MemoryError):  # the tail's lines are nested too deep for Python
            run = by_rows()
        return _Compiled(run, by_rows)
