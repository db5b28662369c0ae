"""A version of a flow with other keys or windows has a table of its own, and what counts is told by all tables."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.flow_table import FlowTable
from edgert.central.landing.flow_tables import flow_of
from edgert.central.landing.hourly_budget import HOUR_S
from edgert.central.landing.landing import LATER_TABLES, Landing
from edgert.central.landing.lineage import Cut, Epoch, Opening, counted
from edgert.central.landing.rounds import key_of
from edgert.central.tables.table import CommitConflict, Table, TableError, list_tables
from edgert.core.results.result_schema import Schema
from tests.central.results_examples import FLOW, SCHEMA, Gateway, contribution
from tests.central.worlds import read

ROOMS = Schema(60.0, (("room", "string"),), SCHEMA.aggregates)
SHORT = Schema(30.0, SCHEMA.keys, SCHEMA.aggregates)
V2, V3 = f"{FLOW}_v2", f"{FLOW}_v3"


def shipped(root: Path, table: str) -> list[tuple[str, int, int]]:
    """(gateway, epoch, sequence) of the contributions in a landing table."""
    found = [r for r in read(root, f"landing/{table}") if not r["lineage"]]
    return sorted((r["gateway"], r["epoch"], r["sequence"]) for r in found)


def lineage(root: Path, table: str) -> dict[Epoch, Cut]:
    """What counts of the epochs that have their rows in a table."""
    at = FlowTable(str(root), table)
    at.refresh()
    return {epoch: cut for epoch, cut in counted(at.openings).items() if epoch in at.opened}


def short(window: int, source: str, *values: float) -> list[Any]:
    row = contribution(window, source, *values)
    return [row[0], row[0] + 30, *row[2:]]


def ordinal(number: int) -> int:
    return number << 32


def test_other_keys_and_other_windows_get_tables_of_their_own_and_all_goes_on(tmp_path: Path) -> None:
    landing = Landing(str(tmp_path))
    g, rooms, halves = Gateway("g1"), Gateway("g2", schema=ROOMS), Gateway("g3", schema=SHORT)
    report = landing.land([g.open(), rooms.open(), halves.open()])
    assert (report.refused_batches, list_tables(str(tmp_path), "landing")) == (0, [FLOW, V2, V3])
    landing.land(
        [g.rows(contribution(0, "a", 1.0)), rooms.rows(contribution(0, "r", 2.0)), halves.rows(short(0, "a", 3.0))]
    )
    assert shipped(tmp_path, FLOW) == [("g1", ordinal(1), 2)]
    assert shipped(tmp_path, V2) == [("g2", ordinal(1), 2)]
    assert shipped(tmp_path, V3) == [("g3", ordinal(1), 2)]
    assert read(tmp_path, "quarantine") == []
    for again in (landing, Landing(str(tmp_path))):
        assert again.land([g.rows(contribution(1, "a", 1.0))]).rows == 1
        assert again.land([rooms.rows(contribution(1, "a", 1.0))]).rows == 1
        for name in ("g1", "g2", "g3"):
            assert set(again.known(name)) == set(again.of_flow(name, FLOW)) == {(name, FLOW, ordinal(1), 0)}
    assert again.version(("g2", FLOW, ordinal(1), 0)) == 4


def test_a_version_that_goes_back_to_former_windows_goes_on_with_what_its_gateway_had_there(tmp_path: Path) -> None:
    first = Gateway("g1")
    second = Gateway("g1", ordinal(2), ROOMS)
    third = Gateway("g1", ordinal(3))
    landing = Landing(str(tmp_path))
    landing.land([first.open(), first.rows(contribution(0, "a", 1.0))])
    landing.land([second.open(ordinal(1), {0: 2}), second.rows(contribution(1, "r", 1.0))])
    landing.land([third.open(ordinal(2), {0: 2}), third.rows(contribution(2, "a", 1.0))])
    assert list_tables(str(tmp_path), "landing") == [FLOW, V2]
    assert lineage(tmp_path, FLOW) == {("g1", ordinal(1)): {0: 2}, ("g1", ordinal(3)): None}
    assert lineage(tmp_path, V2) == {("g1", ordinal(2)): {0: 2}}
    assert set(landing.known("g1")) == {("g1", FLOW, ordinal(3), 0)}
    assert set(landing.of_flow("g1", FLOW, [ordinal(2)])) == {("g1", FLOW, ordinal(n), 0) for n in (2, 3)}


def test_what_a_fallback_makes_void_is_void_though_the_new_epoch_stands_in_another_table(tmp_path: Path) -> None:
    landing = Landing(str(tmp_path))
    first = Gateway("g1")
    landing.land([first.open(), *(first.rows(contribution(n, "a", 1.0)) for n in range(3))])
    landing.land([Gateway("g1", ordinal(2), ROOMS).open(ordinal(1), {0: 3})])
    assert lineage(tmp_path, FLOW) == {("g1", ordinal(1)): {0: 3}}


@pytest.mark.parametrize("removed", [False, True])
def test_a_new_card_opens_above_an_epoch_of_which_there_is_only_the_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    """Its table was removed, or could not be made. A smaller epoch would be void from its beginning."""
    landing = Landing(str(tmp_path))
    first, rooms = Gateway("g1"), Gateway("g1", ordinal(4), ROOMS)
    landing.land([first.open(), first.rows(contribution(0, "a", 1.0))])
    if removed:
        landing.land([rooms.open(ordinal(1), {0: 2}), rooms.rows(contribution(0, "r", 1.0))])
        shutil.rmtree(tmp_path / "landing" / V2)
    else:
        create = Table.append

        def full(self: Table, data: pa.Table, versions: Mapping[str, int]) -> None:
            if self.uri.endswith(V2):
                raise TableError("no space left on device", self.uri)
            create(self, data, versions)

        with monkeypatch.context() as during:
            during.setattr(Table, "append", full)
            assert FLOW in landing.land([rooms.open(ordinal(1), {0: 2})]).failed
    again = Landing(str(tmp_path))
    told = {("g1", FLOW, ordinal(4), 0): 0}
    assert again.known("g1") == again.of_flow("g1", FLOW) == told
    assert again.of_flow("g1", FLOW, [ordinal(1)]) == {**told, ("g1", FLOW, ordinal(1), 0): 2}
    new = Gateway("g1", ordinal(5))
    again.land([new.open(), new.rows(contribution(1, "a", 1.0))])
    assert again.known("g1") == {("g1", FLOW, ordinal(5), 0): 2}
    assert lineage(tmp_path, FLOW)["g1", ordinal(5)] is None


@pytest.mark.parametrize("at", [1, 2])
def test_a_collector_that_ends_before_or_behind_the_note_does_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Its commits: the note in the first table, then the opening in the second."""
    first, second = Gateway("g1"), Gateway("g1", ordinal(2), ROOMS)
    Landing(str(tmp_path)).land([first.open(), first.rows(contribution(0, "a", 1.0))])
    opening, rows = second.open(ordinal(1), {0: 2}), second.rows(contribution(0, "r", 1.0))
    append, count = Table.append, 0

    def ends(self: Table, data: pa.Table, versions: Mapping[str, int]) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise KeyboardInterrupt
        append(self, data, versions)

    with monkeypatch.context() as during:
        during.setattr(Table, "append", ends)
        with pytest.raises(KeyboardInterrupt):
            Landing(str(tmp_path)).land([opening])
    assert list_tables(str(tmp_path), "landing") == [FLOW]
    report = Landing(str(tmp_path)).land([opening, rows])
    assert report.versions[key_of(rows)] == 2
    assert len([r for r in read(tmp_path, f"landing/{FLOW}") if r["lineage"]]) == 2, "the epoch's, and the note"
    assert lineage(tmp_path, FLOW) == {("g1", ordinal(1)): {0: 2}}
    assert shipped(tmp_path, V2) == [("g1", ordinal(2), 2)]


def test_of_two_collectors_that_make_the_same_table_one_decides_again(tmp_path: Path) -> None:
    Landing(str(tmp_path)).land([Gateway("g1").open()])
    other = Landing(str(tmp_path))
    halves = Gateway("g3", schema=SHORT)
    meanwhile: list[list[LandingBatch]] = [[halves.open(), halves.rows(short(0, "a", 1.0))]]

    def comes_first() -> None:
        if meanwhile:
            other.land(meanwhile.pop())

    landing = Landing(str(tmp_path), guard=comes_first)
    rooms = Gateway("g2", schema=ROOMS)
    report = landing.land([rooms.open(), rooms.rows(contribution(0, "r", 1.0))])
    assert (report.rows, report.refused_batches) == (1, 0)
    assert (shipped(tmp_path, V2), shipped(tmp_path, V3)) == ([("g3", ordinal(1), 2)], [("g2", ordinal(1), 2)])


def test_a_later_table_that_is_removed_takes_no_other_with_it(tmp_path: Path) -> None:
    landing = Landing(str(tmp_path))
    g, rooms, halves = Gateway("g1"), Gateway("g2", schema=ROOMS), Gateway("g3", schema=SHORT)
    landing.land([g.open(), rooms.open(), halves.open()])
    shutil.rmtree(tmp_path / "landing" / V2)
    for at in (landing, Landing(str(tmp_path))):
        assert at.land([halves.rows(short(0, "a", 1.0))]).rows == 1
        assert at.version(("g3", FLOW, ordinal(1), 0)) == halves.sequences[0]
        assert set(at.known("g3")) == {("g3", FLOW, ordinal(1), 0)}
    again = Gateway("g2", ordinal(2), ROOMS)
    landing.land([again.open(ordinal(1), {0: 1}), again.rows(contribution(0, "r", 1.0))])
    assert shipped(tmp_path, f"{FLOW}_v4") == [("g2", ordinal(2), 2)]


def test_how_often_the_tables_are_read_does_not_depend_on_how_many_gateways_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Landing(str(tmp_path)).land([Gateway("g0").open(), Gateway("h0", schema=ROOMS).open()])
    read_opens, counts = FlowTable.read_opens, []
    for count in (1, 30):
        reads = [0]

        def counted_reads(table: FlowTable, reads: list[int] = reads) -> None:
            reads[0] += 1
            read_opens(table)

        monkeypatch.setattr(FlowTable, "read_opens", counted_reads)
        landing = Landing(str(tmp_path))
        opened = [Gateway(f"{count}-{n}", schema=(SCHEMA, ROOMS)[n % 2]).open() for n in range(2 * count)]
        assert landing.land(opened).refused_batches == 0
        counts.append(reads[0])
    assert counts[0] == counts[1]


def test_how_often_the_tables_are_read_does_not_depend_on_how_many_epochs_nobody_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Landing(str(tmp_path)).land([Gateway("g0").open(), Gateway("h0", schema=ROOMS).open()])
    whole, counts = Table.read, []
    for count in (1, 30):
        reads = [0]

        def counted_reads(table: Table, columns: list[str], where: str, reads: list[int] = reads) -> Any:
            reads[0] += 1
            return whole(table, columns, where)

        monkeypatch.setattr(Table, "read", counted_reads)
        landing = Landing(str(tmp_path))
        unopened = [Gateway("g666", ordinal(100 * count + n)).rows(contribution(0, "a", 1.0)) for n in range(count)]
        assert landing.land(unopened).refused_batches == count
        counts.append(reads[0])
    assert counts[0] == counts[1]


def test_a_gateway_makes_few_later_tables_of_a_flow_in_an_hour_and_other_flows_and_gateways_have_their_own(
    tmp_path: Path,
) -> None:
    now = 0.0
    landing = Landing(str(tmp_path), monotonic=lambda: now)
    windows = [Schema(61.0 + n, SCHEMA.keys, SCHEMA.aggregates) for n in range(LATER_TABLES + 3)]
    landing.land([Gateway("g1").open()])
    many = [Gateway("g666", ordinal(n + 1), schema) for n, schema in enumerate(windows)]
    waiting = [gateway.open() for gateway in many]
    assert landing.land(waiting).held_back == 3
    assert len(list_tables(str(tmp_path), "landing")) == 1 + LATER_TABLES
    landing.land([Gateway("g1", ordinal(2), ROOMS).open()])
    landing.land([g.open() for g in (Gateway("g666", flow="other"), Gateway("g666", ordinal(2), ROOMS, "other"))])
    assert len(list_tables(str(tmp_path), "landing")) == 2 + LATER_TABLES + 2
    now = HOUR_S / LATER_TABLES
    assert landing.land(waiting).held_back == 2, "what waits is made in time"


def test_a_lasting_attack_makes_no_more_tables_of_a_flow_than_are_allowed_and_harms_no_other(tmp_path: Path) -> None:
    now = 0.0
    most = LATER_TABLES + 2

    def landing() -> Landing:
        return Landing(str(tmp_path), monotonic=lambda: now, most_tables=most)

    its, refused = landing(), 0
    its.land([Gateway("g1").open()])
    windows = [Schema(61.0 + n, SCHEMA.keys, SCHEMA.aggregates) for n in range(4 * LATER_TABLES)]
    many = [Gateway("g666", ordinal(n + 1), schema) for n, schema in enumerate(windows)]
    for attacker in many:
        now += HOUR_S / LATER_TABLES
        refused += its.land([attacker.open(), attacker.rows(contribution(0, "a", 1.0))]).refused_batches
    assert len(list_tables(str(tmp_path), "landing")) == 1 + most
    assert refused == 2 * (len(many) - most)
    assert {row["reason"].partition(":")[0] for row in read(tmp_path, "quarantine")} >= {"open"}
    now += HOUR_S
    for number, again in enumerate((its, landing())):
        assert again.land([many[0].rows(contribution(60, "a", 1.0))]).refused_batches == 0, "its own tables stay open"
        assert again.land([Gateway("g666", ordinal(99 + number), windows[-1]).open()]).refused_batches == 1
        now += HOUR_S
    report = its.land([Gateway("g1", ordinal(2), ROOMS).open(), Gateway("g666", flow="other").open()])
    assert (report.refused_batches, report.held_back) == (0, 0)


def test_an_aggregate_of_another_kind_is_refused_as_ever(tmp_path: Path) -> None:
    landing = Landing(str(tmp_path))
    other = Schema(60.0, SCHEMA.keys, (("n", "sum"), *SCHEMA.aggregates[1:]))
    report = landing.land([Gateway("g1").open(), Gateway("g2", schema=other).open()])
    assert (report.refused_batches, list_tables(str(tmp_path), "landing")) == (1, [FLOW])
    assert "aggregate n: expected count like the table's rows, got sum" in report.reasons[0]


@pytest.mark.parametrize("seed", range(6))
def test_versions_back_and_forth_by_several_collectors_that_end_at_any_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each result is in one table once; and each table tells of its epochs what all openings together do."""
    draw = random.Random(seed)
    print(f"seed {seed}")
    append = Table.append

    def fails_at_times(self: Table, data: pa.Table, versions: Mapping[str, int]) -> None:
        fate = draw.random()
        if fate < 0.08:
            raise KeyboardInterrupt
        append(self, data, versions)
        if fate < 0.16:
            raise KeyboardInterrupt
        if fate < 0.2:
            raise CommitConflict("as if another came first")

    collectors = [Landing(str(tmp_path)) for _ in range(2)]
    openings: list[Opening] = []
    sent: set[tuple[str, int, int]] = set()
    now: dict[str, Gateway] = {}
    for _ in range(14):
        name = draw.choice(["g1", "g2"])
        before, schema = now.get(name), draw.choice([SCHEMA, ROOMS, SHORT])
        gateway = now[name] = Gateway(name, ordinal(1) + (before.epoch if before else 0), schema)
        cut = {0: draw.randint(1, before.sequences[0])} if before else {}
        row = short(0, "a", 1.0) if schema is SHORT else contribution(0, "a", 1.0)
        batches: list[Any] = [gateway.open(before.epoch if before else None, cut)]
        batches += [gateway.rows(row) for _ in range(draw.randint(0, 3))]
        openings.append(Opening(name, gateway.epoch, before.epoch if before else None, cut))
        sent |= {(name, gateway.epoch, b.sequence) for b in batches[1:]}
        with monkeypatch.context() as during:
            during.setattr(Table, "append", fails_at_times)
            for _ in range(40):
                which = draw.randrange(2)
                try:
                    collectors[which].land(batches)
                    break
                except KeyboardInterrupt:
                    collectors[which] = Landing(str(tmp_path))
        for each in collectors:  # whoever lands it again, nothing is doubled
            each.land(batches)
            assert each.version(key_of(batches[-1])) == batches[-1].sequence
    tables = list_tables(str(tmp_path), "landing")
    landed = [row for table in tables for row in shipped(tmp_path, table)]
    assert sorted(sent) == sorted(landed)
    assert read(tmp_path, "quarantine") == []
    told: dict[Epoch, Cut] = {}
    for table in tables:
        told |= lineage(tmp_path, table)
    assert told == counted(openings)
    assert len(tables) <= 3


def test_a_table_tells_whose_it_is() -> None:
    assert [flow_of(name) for name in ("air", V2, "air_v12", "air_v2_indoor", "a/landing/air_v3")] == [
        "air", "air", "air", "air_v2_indoor", "a/landing/air",
    ]  # fmt: skip
