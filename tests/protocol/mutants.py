"""Rules of the design, broken one at a time: a walk that finds none of them out would say little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from edgert.core.checkpoint.position import Position
from edgert.core.errors import DamagedError, EdgertError
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.store import epochs, fallback
from edgert.store.database import Database
from edgert.store.outbox import early_results
from edgert.store.state import spill
from edgert.store.state.records import StateExtent
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.checkpoint.early_results import EarlyResults
from gateway.hosts.in_process import PoolCheckpoints
from gateway.hosts.slotted_flow import SlottedFlow
from gateway.ingest.inbox import Inbox, Route
from gateway.ingest.packet_ids import SENT, IdTable
from gateway.ingest.routes import Routes
from gateway.ingest.subscriptions import Subscriptions
from gateway.registry import recovery as fallback_at_start
from gateway.uplink import reconcile
from gateway.uplink.uplink import Uplink
from tests.protocol.board import Board
from tests.protocol.mutants_central import CENTRAL_MUTANTS, Patch


def _acknowledged_before_the_commit() -> Patch:
    return mock.patch.object(Progress, "has_committed", return_value=True)


def _acknowledged_when_one_flow_has_it() -> Patch:
    due = Inbox.due

    def first(self: Inbox) -> list[tuple[int, int]]:
        self.owed = type(self.owed)((i, q, x, flows[:1], size) for i, q, x, flows, size in self.owed)
        return due(self)

    return mock.patch.object(Inbox, "due", first)


def _acknowledged_out_of_order() -> Patch:
    def due(self: Inbox) -> list[tuple[int, int]]:
        found, left = [], type(self.owed)()
        for owed in self.owed:
            packet_id, qos, index, flows, size = owed
            if all(flow.has_committed(index) for flow in flows):
                self.table.sent[packet_id] = SENT
                self.uncommitted_bytes -= size
                found.append((packet_id, qos))
            else:
                left.append(owed)
        self.owed = left
        return found

    return mock.patch.object(Inbox, "due", due)


def _acknowledgements_outlive_their_connection() -> Patch:
    return mock.patch.object(Inbox, "connection_lost", return_value=None)


def _id_table_is_not_written() -> Patch:
    return mock.patch.object(Database, "_write_table", return_value=None)


def _pages_of_a_failed_commit_are_forgotten() -> Patch:
    return mock.patch.object(IdTable, "give_back", return_value=None)


def _ids_are_forgotten_with_their_acknowledgement() -> Patch:
    due = Inbox.due

    def forgets(self: Inbox) -> list[tuple[int, int]]:
        found = due(self)
        for packet_id, _ in found:
            self.table.set(packet_id, 0, 0)
        return found

    return mock.patch.object(Inbox, "due", forgets)


def _a_lost_session_leaves_the_ids() -> Patch:
    return mock.patch.object(Inbox, "session_lost", Inbox.connection_lost)


def _a_lost_session_is_not_written() -> Patch:
    async def nothing(_: Board) -> None:
        pass

    return mock.patch.object(Board, "_forget_session", nothing)


def _pubrel_leaves_the_id() -> Patch:
    def released(self: Inbox, packet_id: int) -> None:
        self.releases += 1
        self.completing.append((self.releases, packet_id))

    return mock.patch.object(Inbox, "released", released)


def _ids_are_free_before_a_commit_says_so() -> Patch:
    def all_of_them(self: Inbox) -> list[int]:
        due = [packet_id for _, packet_id in self.completing]
        self.completing.clear()
        return due

    return mock.patch.object(Inbox, "complete", all_of_them)


def _a_fallback_leaves_no_doubt() -> Patch:
    resume = Inbox.resume

    def certain(self: Inbox, *, doubtful_to: int = 0) -> None:
        resume(self)

    return mock.patch.object(Inbox, "resume", certain)


def _ambiguous_ones_are_not_counted() -> Patch:
    def uncounted(self: Inbox, packet_id: int, index: int, route: Route, qos: int) -> Route:
        before = self.counters.ambiguous
        left = redelivered(self, packet_id, index, route, qos)
        self.counters.ambiguous = before
        return left

    redelivered = Inbox._redelivered
    return mock.patch.object(Inbox, "_redelivered", uncounted)


def _marks_outlive_the_names_of_their_epochs() -> Patch:
    return mock.patch.object(fallback, "forget_extent", return_value=None)


def _what_a_fallback_made_void_counts_under_another_name() -> Patch:
    return mock.patch.object(epochs, "_least", lambda one, other: one)


def _messages_by_newer_subscriptions_are_dropped() -> Patch:
    return mock.patch.multiple(Subscriptions, lose=lambda self: None, is_newer=lambda self, number: False)


def _overlapping_subscriptions_look_alike() -> Patch:
    as_route = Routes._as_route
    return mock.patch.object(Routes, "_as_route", lambda self, sources, seed, **of: as_route(self, sources, 0, **of))


def _what_came_by_a_filter_that_a_flow_has_left_is_nobodys() -> Patch:
    return mock.patch.object(Subscriptions, "_leave", return_value=None)


def _what_is_read_is_not_kept() -> Patch:
    load = Subscriptions.load

    def forgets(self: Subscriptions, text: str) -> None:
        load(self, text)
        self.read = {}

    return mock.patch.object(Subscriptions, "load", forgets)


def _positions_have_no_holes() -> Patch:
    def resume(self: Progress, known: set[int], greatest: int) -> None:
        self.fed = max(self.fed, greatest)

    return mock.patch.object(Progress, "resume", resume)


def _position_is_that_of_the_commit() -> Patch:
    form = FlowRun.form

    def late(self: FlowRun, drops: Any = ()) -> Any:
        found = form(self, drops)
        if found is not None:
            found.position = self.progress.position()
        return found

    return mock.patch.object(FlowRun, "form", late)


def _what_a_failed_commit_held_is_dropped() -> Patch:
    def commit(self: Checkpointer, runs: list[FlowRun]) -> Any:
        try:
            return whole(self, runs)
        except Exception:
            for run in runs:
                run.pending.clear()
            raise

    whole = Checkpointer._commit
    return mock.patch.object(Checkpointer, "_commit", commit)


def _a_new_version_drops_open_windows() -> Patch:
    def capture_end(self: FlowRun) -> None:
        whole(self)
        self.pending[-1].rows.clear()

    whole = FlowRun.capture_end
    return mock.patch.object(FlowRun, "capture_end", capture_end)


def _no_new_epoch_after_going_back() -> Patch:
    return mock.patch.object(reconcile, "is_foreign", return_value=False)


def _the_brokers_word_counts() -> Patch:
    publish = Uplink._publish

    def deletes(self: Uplink, flow: str, payload: bytes, limits: Any) -> bool:
        done = publish(self, flow, payload, limits)
        for key, _ in self.database.outbox_streams() if done else ():
            entries = self.database.outbox(*key, 0, 100)
            self.database.acknowledged(
                dict.fromkeys([key], max([e.sequence for e in entries if e.payload == payload], default=0))
            )
        return done

    return mock.patch.object(Uplink, "_publish", deletes)


def _a_redelivery_is_taken_again() -> Patch:
    return mock.patch.object(Progress, "takes", return_value=True)


def _a_redelivery_is_always_skipped() -> Patch:
    return mock.patch.object(Progress, "takes", return_value=False)


def _positions_start_anew() -> Patch:
    from gateway.flows.plans import Plans

    run = Plans.run_of
    return mock.patch.object(
        Plans, "run_of", lambda self, flow, stored, _: run(self, flow, stored, Progress(Position()))
    )


def _every_flow_leaves_ahead_of_its_checkpoint() -> Patch:
    return mock.patch.object(EarlyResults, "chosen", lambda self: list(self._checkpointer.runs.values()))


def _what_could_not_leave_ahead_is_dropped() -> Patch:
    return mock.patch.object(PoolCheckpoints, "give_back", return_value=None)


def _repetitions_are_not_foreseen() -> Patch:
    return mock.patch.object(early_results, "put", return_value=None)


def _who_cannot_write_a_fallback_begins() -> Patch:
    """Without that flow, whose input is acknowledged then."""

    def passed_over(*of: Any) -> Any:
        try:
            return fallback_at_start.resumption(*of)
        except EdgertError as error:
            raise DamagedError(str(error)) from error

    return mock.patch("gateway.flows.flows.resumption", passed_over)


def _a_fallback_voids_nothing() -> Patch:
    go_back = fallback.go_back

    def keeps(db: Any, flow: str, to: StateExtent, successor: int, gap: str) -> Any:
        newest, cut = db.execute("SELECT max(epoch), max(sequence) FROM stream WHERE flow = ?", (flow,)).fetchone()
        return go_back(db, flow, replace(to, epoch=newest, cut=dict.fromkeys(range(16), cut)), successor, gap)

    return mock.patch.object(fallback, "go_back", keeps)


def _a_fallback_takes_nothing_again() -> Patch:
    go_back = fallback.go_back

    def keeps(db: Any, flow: str, to: StateExtent, successor: int, gap: str) -> Any:
        (index,) = db.execute("SELECT position FROM flow WHERE name = ?", (flow,)).fetchone()
        return go_back(db, flow, replace(to, position=Position(index)), successor, gap)

    return mock.patch.object(fallback, "go_back", keeps)


def _results_do_not_stay_where_no_state_is_whole() -> Patch:
    here = fallback_at_start._here

    def void(database: Database, stored: Any, number: int) -> StateExtent:
        mark = here(database, stored, number)
        return mark if number else replace(mark, cut={})

    return mock.patch.object(fallback_at_start, "_here", void)


def _spilled_input_is_not_fed_again() -> Patch:
    read = spill.read

    def empty(db: Any, flow: str) -> Any:
        found = read(db, flow)
        return found and replace(found, queues=[])

    return mock.patch.object(spill, "read", empty)


def _spilled_input_outlives_its_checkpoint() -> Patch:
    return mock.patch.object(spill, "forget", return_value=None)


def _a_spill_is_in_no_position() -> Patch:
    read = spill.read

    def elsewhere(db: Any, flow: str) -> Any:
        found = read(db, flow)
        (at,) = db.execute("SELECT position FROM flow WHERE name = ?", (flow,)).fetchone()
        return found and replace(found, position=Position(at))

    return mock.patch.object(spill, "read", elsewhere)


def _what_is_kept_outlives_its_spill() -> Patch:
    return mock.patch.object(PoolCheckpoints, "spilled", return_value=None)


def _a_slot_is_not_fed_again() -> Patch:
    return mock.patch.object(SlottedFlow, "keep", return_value=None)


def _what_was_captured_survives_the_death_of_a_slot() -> Patch:
    began_anew = SlottedFlow.began_anew

    def keeps(self: SlottedFlow) -> int:
        pending = [*self.run.pending]
        lost = began_anew(self)
        self.run.pending += pending
        return lost

    return mock.patch.object(SlottedFlow, "began_anew", keeps)


def _what_is_spilled_is_fed_to_a_slot_as_well() -> Patch:
    return mock.patch.object(SlottedFlow, "spilled", return_value=None)


def _what_has_left_may_make_way() -> Patch:
    return mock.patch.object(Database, "departing", Database.outbox)


MUTANTS: Final[Mapping[Callable[[], Patch], int]] = {
    _acknowledged_before_the_commit: 9,
    _acknowledged_when_one_flow_has_it: 0,
    _acknowledged_out_of_order: 0,
    _acknowledgements_outlive_their_connection: 7_000,
    _id_table_is_not_written: 1,
    _pages_of_a_failed_commit_are_forgotten: 200,
    _ids_are_forgotten_with_their_acknowledgement: 4,
    _a_lost_session_leaves_the_ids: 7_000,
    _a_lost_session_is_not_written: 7_007,
    _pubrel_leaves_the_id: 7_002,
    _ids_are_free_before_a_commit_says_so: 7_000,
    _marks_outlive_the_names_of_their_epochs: 8_350,
    _a_fallback_leaves_no_doubt: 3_076,
    _ambiguous_ones_are_not_counted: 7_001,
    _what_a_fallback_made_void_counts_under_another_name: 8_013,
    _what_came_by_a_filter_that_a_flow_has_left_is_nobodys: 10_000,
    _what_is_read_is_not_kept: 10_000,
    _messages_by_newer_subscriptions_are_dropped: 3_124,
    _overlapping_subscriptions_look_alike: 80,
    _positions_have_no_holes: 2,
    _position_is_that_of_the_commit: 244,
    _what_a_failed_commit_held_is_dropped: 200,
    _a_new_version_drops_open_windows: 0,
    _no_new_epoch_after_going_back: 8_005,
    _the_brokers_word_counts: 0,
    _a_redelivery_is_taken_again: 0,
    _a_redelivery_is_always_skipped: 2,
    _positions_start_anew: 1,
    _every_flow_leaves_ahead_of_its_checkpoint: 1_000,
    _what_could_not_leave_ahead_is_dropped: 1_015,
    _repetitions_are_not_foreseen: 1_004,
    _who_cannot_write_a_fallback_begins: 3_002,
    _a_fallback_voids_nothing: 3_000,
    _a_fallback_takes_nothing_again: 3_250,
    _results_do_not_stay_where_no_state_is_whole: 3_002,
    _spilled_input_is_not_fed_again: 4_019,
    _spilled_input_outlives_its_checkpoint: 4_019,
    _a_spill_is_in_no_position: 4_019,
    _what_is_kept_outlives_its_spill: 4_026,
    _a_slot_is_not_fed_again: 5_003,
    _what_was_captured_survives_the_death_of_a_slot: 5_230,
    _what_is_spilled_is_fed_to_a_slot_as_well: 5_004,
    _what_has_left_may_make_way: 6_006,
    **CENTRAL_MUTANTS,
}
"""Each with a seed whose walk finds it out. After a change of the walks the search goes on from there, and takes longer
until the seed is set anew. Some take hundreds of walks."""
