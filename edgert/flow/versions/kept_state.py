"""The fate of the state of a flow that a next version replaces, as it is said over control sockets and MQTT."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edgert.flow.versions.heirs import Succession


class LostState(msgspec.Struct, frozen=True):
    """The state of one operator that does not go on."""

    operator: str
    reason: str


class KeptState(msgspec.Struct, frozen=True):
    """The operators that keep state, by what becomes of it."""

    kept: Sequence[str] = ()
    """Operators of the next version that go on with their state."""
    lost: Sequence[LostState] = ()
    replaces: bool = True
    """False: no version runs that is replaced."""

    def sentences(self, *, done: bool) -> list[str]:
        """Lines for people; `done`: the version was replaced already."""
        if not self.replaces:
            return [] if done else ["no version of the flow runs there: all of its operators begin without state"]
        keep, lose = ("kept", "lost") if done else ("would be kept", "would be lost")
        lines = [f"state {keep}: {', '.join(self.kept)}"] if self.kept else []
        lines += [f"state {lose}: {one.operator} ({one.reason})" for one in self.lost]
        return lines or ([] if done else ["no operator of the flow keeps state"])


NOTHING_REPLACED = KeptState(replaces=False)


def kept_state(found: Succession, fault: str = "") -> KeptState:
    """The report of a replacement. `fault`: why no state goes on, empty if it does."""
    if fault:
        lost = {**dict.fromkeys(found.kept, fault), **found.lost}
        return KeptState(lost=[LostState(*one) for one in lost.items()])
    return KeptState(found.kept, [LostState(*one) for one in found.lost.items()])


def kept_state_untrusted(plain: object) -> KeptState:
    """Reads a report; one that is none says nothing."""
    try:
        return msgspec.convert(plain, KeptState)
    except msgspec.ValidationError:
        return NOTHING_REPLACED
