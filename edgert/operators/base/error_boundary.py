"""Between the runtime and an operator: finds the rows on which it raises, and does with them what the flow says.

    raised on 8 rows ── 4 pass
                     └─ 4 raise ── 2 raise ── 1 passes
                                           └─ 1 raises: tried again later, or lost: counted, sent on as a dead letter
                                └─ 2 pass

Nothing of this costs anything while nothing raises, beside a copy of a few counters per batch. No row is given twice to
an operator whose state may hold it already: see `ErrorBoundary`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite, isnan
from typing import Any, Final

import msgspec

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row, slice_of
from edgert.core.text.mqtt_text import fitting
from edgert.flow.options.on_error import OnError
from edgert.operators.base.logic import Emission, Logic, Message, Now, foreign
from edgert.operators.base.values import plain_rows

CAREFUL_ROWS: Final = 1_000
"""After an operator that cannot be asked twice has raised, so many rows are given to it one by one."""
APART_S: Final = 1.0
"""After so long a turn in which an operator raises ends, and what it has not tried comes in the next: where each row
waits for a service that is away, no checkpoint could be made until all of them have."""
FAILED: Final = "operator failed"
"""The reason under which rows are counted that are lost because an operator raised."""
EXPECTED: Final = "expected an emission: (port, Batch) with a list of rows, its arrival and its watermark, seconds"
_NOTHING: Final[Mapping[str, int]] = {}
Process = Callable[[Batch | RawBatch, int, Now], Sequence[Emission]]
Attempt = tuple[Sequence[Emission], BaseException | None]
"""Emissions of an operator, and the exception that it raised instead."""


class ErrorBoundary:
    """Stands around the `process` of one operator. What it guarantees, in whatever batches rows come:

    - Repeatable operators (`Logic.repeatable`): only rows that raise by themselves are lost. Messages and counts of an
      attempt that raised are taken back, so nothing is said or counted twice.
    - Others, which may have put part of a batch into their state before they raised: no row is given a second time. The
      batch that raised is lost as a whole, and the next `CAREFUL_ROWS` rows come one by one, so that a row which raises
      costs only itself; so it goes on as long as some do.
    - The watermark of a lost batch is passed on. What comes out keeps the order of what came in.

    What is no `Exception` (a panic of a Rust extension, a cancellation, an exit) is an error as any other. Only
    `KeyboardInterrupt` is raised: it may be meant for the thread that a gateway has lent.
    """

    __slots__ = (
        "_careful", "_foreign", "_own", "_stuck", "_tried", "clock", "dead_letters", "errors", "failures", "flow",
        "held", "logic", "newest_lost", "operator", "patient", "policy", "repeatable", "retries", "wait_s",
    )  # fmt: skip

    def __init__(self, logic: Logic, process: Process | None = None, repeatable: bool | None = None) -> None:
        """`process`: what is called instead of the logic's own, if that is only a part of it."""
        self.logic = logic
        self._own = process
        self._foreign = foreign(logic)
        self.repeatable = repeats(logic) if repeatable is None else repeatable
        self.flow = self.operator = ""
        self.policy = OnError()
        self.failures = 0
        """Tries that raised with a row by itself, or with a batch that cannot be taken apart; and rows given that
        nobody could carry further."""
        self.retries = 0
        """Rows set aside to be tried again."""
        self.dead_letters = 0
        self.newest_lost: tuple[str, object] = "", None
        """The row that was lost last, behind its reason."""
        self.errors: list[tuple[str, BaseException]] = []
        """The last error and its operator, until somebody takes it for the log. Boundaries of a line may share it."""
        self.held: list[Batch | RawBatch] = []
        """Batches for a later turn, in order: a row that raised and all rows behind it, or those for which this turn
        had no time. The caller of `process` takes them (`take_held`)."""
        self.wait_s = 0.0
        """How long to wait before that, seconds."""
        self.patient = True
        """True if there is a later; if not, a row is tried again at once."""
        self.clock: Callable[[], float] | None = None
        """The clock of `Now.monotonic`, to see how long a turn takes; None: a turn may take any time."""
        self._careful = 0
        self._stuck: object = None
        """The row that raised last and is to be tried again, until it passes or is lost: the next one may be the same
        object."""
        self._tried = 0

    @property
    def careful(self) -> bool:
        """True if rows are given one by one at present."""
        return self._careful > 0

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        """Works as `Logic.process`, but no error is raised; and `held` is to be looked at."""
        if self._careful and len(batch) > 1:
            return self._one_by_one(batch, source, now)
        logic = self.logic
        messages = len(logic.messages)
        before = dict.copy(logic.drops) if logic.drops else _NOTHING
        try:
            emissions = (self._own or logic.process)(batch, source, now)
            if self._foreign:
                emissions = self._checked(emissions)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever an operator raises must not end its worker
            self._take_back(messages, before)
            return self._apart(batch, source, now, error)
        if self._stuck is not None:  # it comes first, so it has passed
            self._stuck = None
        if logic.lost:
            self.letters()
        return emissions

    def flush(self, now: Now, but: Container[Logic] = ()) -> Sequence[Emission]:
        """Works as `Logic.flush`, but no error is raised. Logic in `but` keeps what it holds."""
        if self.logic in but:
            return ()
        try:
            emissions = self.logic.flush(now)
            return self._checked(emissions) if self._foreign else emissions
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the flow must still be able to end
            self._failed(error)
            self.logic.drops[FAILED] += 1
            return ()

    def take_held(self, source: int) -> list[tuple[int, Batch | RawBatch]]:
        """Takes the held batches, which came by input `source`."""
        held, self.held = self.held, []
        return [(source, batch) for batch in held]

    def _attempt(self, batch: Batch | RawBatch, source: int, now: Now) -> Attempt:
        """If it raises, messages and counts are as if it had not been tried."""
        logic = self.logic
        messages, before = len(logic.messages), dict(logic.drops)
        try:
            emissions = (self._own or logic.process)(batch, source, now)
            if self._foreign:
                emissions = self._checked(emissions)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - as in `process`
            self._take_back(messages, before)
            return (), error
        self._stuck = None
        self.letters()
        return emissions, None

    def _checked(self, emissions: Iterable[Any]) -> Sequence[Emission]:
        """Checks emissions as `checked` does. Rows that no later operator could take are lost here, each by itself.
        They are taken from what the operator gave: whatever it was given for them is in its state, and it would give
        them again."""
        whole = checked(emissions)
        faults: list[tuple[Any, BaseException]] = []
        for at, (port, batch) in enumerate(whole):
            rows = plain_rows(batch.rows, faults)
            whole[at] = Emission(port, Batch(rows, batch.arrival, batch.watermark))  # its size is reckoned by us
        for row, error in faults:
            self._lose(Batch([row], 0.0), error)
        return whole

    def _take_back(self, messages: int, drops: Mapping[str, int]) -> None:
        """Takes back messages and drop counts of a try that raised; the arguments are the figures before it. Those of
        an operator that is not asked again stay: its state may contain the rows."""
        if not self.repeatable:
            self.letters()
            return
        logic = self.logic
        del logic.messages[messages:]
        logic.lost = []
        for reason in list(logic.drops):  # one by one: somebody may be reading them
            if reason in drops:
                logic.drops[reason] = drops[reason]
            else:
                del logic.drops[reason]

    def letters(self) -> None:
        """Dead letters of what the operator itself found at fault."""
        lost, self.logic.lost = self.logic.lost, []
        for row, reason in lost:
            self._send_on(row, reason)

    def _apart(self, batch: Batch | RawBatch, source: int, now: Now, raised: BaseException) -> list[Emission]:
        """A batch that has `raised`, in ever smaller parts."""
        out: list[Emission] = []
        if not self.repeatable:
            self._careful = CAREFUL_ROWS
            self._lose(batch, raised)
            return self._time_goes_on(batch, source, now)
        waiting = [batch]
        """Batches to give, the first one last."""
        error: BaseException | None = raised
        while waiting:
            if error is None and self.late(now):
                self.held, self.wait_s = waiting[::-1], 0.0
                break
            piece = waiting.pop()
            if error is None:
                emissions, error = self._attempt(piece, source, now)
                if error is None:
                    out += emissions
                    continue
            length = len(piece)
            if length > 1:
                waiting += slice_of(piece, length // 2, length), slice_of(piece, 0, length // 2)
            elif not length or not self._again(piece, error):
                self._lose(piece, error)
                out += self._time_goes_on(piece, source, now)
            elif self.patient:
                self.held = [piece, *reversed(waiting)]
                break
            else:
                waiting.append(piece)
            error = None
        return out

    def _one_by_one(self, batch: Batch | RawBatch, source: int, now: Now) -> list[Emission]:
        out: list[Emission] = []
        length = len(batch)
        for at in range(length):
            if at and self.late(now):
                self.held, self.wait_s = [slice_of(batch, at, length)], 0.0
                break
            self._careful = max(0, self._careful - 1)
            piece = slice_of(batch, at, at + 1)
            emissions, error = self._attempt(piece, source, now)
            out += emissions if error is None else self._apart(piece, source, now, error)
        return out

    def late(self, now: Now) -> bool:
        """True if a turn with errors that began `now` is to end, and there is another."""
        return self.patient and self.clock is not None and self.clock() - now.monotonic > APART_S

    def _again(self, piece: Batch | RawBatch, error: BaseException) -> bool:
        """True if the one row of `piece`, which has just raised, is to be tried once more."""
        if self.policy.action != "retry":
            return False
        row: object = piece.payloads[0] if isinstance(piece, RawBatch) else piece.rows[0]
        if row is not self._stuck:
            self._stuck, self._tried = row, 0
        if self._tried >= self.policy.tries:
            self._stuck = None
            return False
        self.wait_s = self.policy.wait_s(self._tried)
        self._tried += 1
        self.retries += 1
        self._failed(error)
        return True

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        self.errors[:] = [(self.operator, error)]

    def _lose(self, batch: Batch | RawBatch, error: BaseException) -> None:
        self._failed(error)
        if not len(batch):
            return
        self.logic.drops[FAILED] += len(batch)
        reason = _said(error)
        if len(batch) > 1:
            reason += f" (in a batch of {len(batch)} rows, part of which may be in the operator's state)"
        for row in batch.payloads if isinstance(batch, RawBatch) else batch.rows:
            self._send_on(row, reason)

    def _time_goes_on(self, batch: Batch | RawBatch, source: int, now: Now) -> list[Emission]:
        """The watermark of a batch that is lost; if that raises too, the next one will bring it."""
        if isinstance(batch, RawBatch) or not batch.rows or batch.watermark == NO_WATERMARK:
            return []
        emissions, error = self._attempt(Batch([], batch.arrival, batch.watermark), source, now)
        if error is not None:
            self._failed(error)
        return list(emissions)

    def _send_on(self, row: Row | bytes, reason: str) -> None:
        """A dead letter, if the flow wants any; a message that was not decoded goes as it came."""
        self.newest_lost = reason, row
        topic = self.policy.topic
        if topic is None:
            return
        self.dead_letters += 1
        device = row.get("source") if isinstance(row, dict) else None
        names = {"flow": self.flow, "operator": _as_level(self.operator), "source": _as_level(device)}
        payload = row if isinstance(row, bytes) else dead_letter(self.flow, self.operator, reason, row)
        self.logic.messages.append(Message(topic.filled(names), payload, 1, reason=f"{self.operator}: {reason}"))


def checked(emissions: Iterable[Any]) -> list[Emission]:
    """All emissions of an operator of another package. An exception of a generator is raised here, within the error
    boundary. Raises `TypeError` for what is no emission."""
    if not isinstance(emissions, Iterable):
        raise TypeError(f"expected a list of emissions, got {_shown(emissions)[:200]}")
    whole: list[Emission] = []
    for emission in emissions:
        match emission:
            case (int() as port, Batch() as batch) if _is_whole(batch):
                whole.append(Emission(port, batch))
            case _:
                raise TypeError(f"{EXPECTED}, got {_shown(emission)[:200]}")
    return whole


def _is_whole(batch: Batch) -> bool:
    """True if queues and instances can reckon with it. Of its rows the first is looked at: what is wrong with others is
    found with what they hold."""
    found: tuple[Any, ...] = batch.rows, batch.arrival, batch.watermark, batch.size
    match found:
        case ([] | [{}, *_]) as rows, int() | float() as arrival, int() | float() as watermark, int():
            return isinstance(rows, list) and isfinite(arrival) and not isnan(watermark)
    return False


@contextmanager
def as_errors() -> Iterator[None]:
    """Around what else is asked of operators: to be made, to say their state or take it back. What one raises there
    that is no `Exception` becomes one, or it would pass all who look after their flows by themselves."""
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RuntimeError(f"an operator raised {_said(error)}") from error


def repeats(logic: Logic) -> bool:
    """True if a batch may be given again: `Logic.repeatable`, with its default."""
    if logic.repeatable is not None:
        return logic.repeatable
    kind = type(logic)
    own = (kind.flush, kind.delta, kind.snapshot, kind.restore)
    return own == (Logic.flush, Logic.delta, Logic.snapshot, Logic.restore)


def dead_letter(flow: str, operator: str, error: str, row: Row) -> bytes:
    """A row that was lost, as JSON: `{"flow": ..., "operator": ..., "error": ..., "row": {...}}`. What JSON lacks is
    written as Python shows it, NaN and infinities as null."""
    head: dict[str, Any] = {"flow": flow, "operator": operator, "error": _text(error)[:1_000]}
    try:
        return msgspec.json.encode({**head, "row": row}, enc_hook=repr)
    except Exception:  # noqa: BLE001 - a row of somebody else's operator may hold anything, and is lost already
        return msgspec.json.encode({**head, "row": _shown(row)})


def _shown(row: object) -> str:
    try:
        return _text(repr(row))[:10_000]
    except Exception as error:  # noqa: BLE001 - as in `dead_letter`
        return f"a row that cannot be shown ({type(error).__name__})"


def _said(error: BaseException) -> str:
    try:
        return _text(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - an error of somebody else's that cannot even be shown
        return type(error).__name__


def _text(text: str) -> str:
    """The part of a text that UTF-8 can carry."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _as_level(name: object) -> str:
    """A name as one level of a topic."""
    return fitting(_text("" if name is None else str(name))).translate(_NO_LEVEL) or "unknown"


_NO_LEVEL: Final = {ord(c): "_" for c in "+#/"}
