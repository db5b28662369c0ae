"""Results become commits of Delta tables, each result in exactly one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.landing import Landing
from edgert.central.landing.rounds import key_of
from edgert.central.tables.query import query
from edgert.central.tables.table import CommitConflict, Table, TableError
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import GapBatch, RefusedBatch, RowsBatch
from tests.central.results_examples import FLOW, SCHEMA, Gateway, contribution
from tests.central.worlds import landed_rows, read
from tests.examples import examples


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(str(tmp_path))


def test_results_of_many_gateways_land_in_one_commit(landing: Landing, tmp_path: Path) -> None:
    gateways = [Gateway(f"g{i}") for i in range(20)]
    landing.land([g.open() for g in gateways])
    report = landing.land([g.rows(contribution(0, "a", 1.0)) for g in gateways])
    assert (report.commits, report.rows) == (1, 20)
    assert DeltaTable(str(tmp_path / "landing" / FLOW)).version() == 1
    assert set(report.versions.values()) == {2}


def other_schema(how: str) -> Schema:
    return Schema(SCHEMA.window_s, SCHEMA.keys, (*SCHEMA.aggregates, ("more", how)))


@pytest.mark.parametrize("at_once", [False, True])
def test_what_another_collector_made_of_the_schema_is_known_when_an_epoch_opens(tmp_path: Path, at_once: bool) -> None:
    """A column is one aggregate's, whoever is first: the second is refused, and the table stays whole."""
    one, two = Gateway("g1"), Gateway("g2")
    first = Landing(str(tmp_path))
    first.land([one.open()])

    def widens() -> None:
        first.land([Gateway("g1", epoch=9 << 32, schema=other_schema("sum")).open()])

    meanwhile = [widens]
    second = Landing(str(tmp_path), guard=lambda: meanwhile.pop()() if at_once and meanwhile else None)
    if not at_once:
        second.land([two.open()])
        meanwhile.pop()()
    report = second.land([Gateway("g2", epoch=9 << 32, schema=other_schema("min")).open()])
    assert report.refused_batches == 1
    assert "more" in report.reasons[0]
    again = Landing(str(tmp_path))
    assert set(again.known("g1", FLOW)) == {("g1", FLOW, 9 << 32, 0)}


def test_a_table_that_somebody_else_wrote_to_does_not_stop_the_other_flows(landing: Landing, tmp_path: Path) -> None:
    g, strange = Gateway("g1"), Gateway("g1", flow="strange")
    landing.land([g.open(), strange.open()])
    table = tmp_path / "landing" / "strange"
    row = {**query(DeltaTable(str(table)))[0], "epoch": 77 << 32, "lineage": "{}"}
    known = DeltaTable(str(table)).schema().to_arrow()
    write_deltalake(str(table), pa.Table.from_pylist([row], schema=pa.schema(known)), mode="append")
    again = Landing(str(tmp_path))
    assert {flow for _, flow, _, _ in again.known("g1", FLOW)} >= {FLOW}
    with pytest.raises(TableError, match="expected a lineage"):
        Landing(str(tmp_path)).known("g1", "strange")


def test_columns_and_partitions_are_those_of_the_design(landing: Landing, tmp_path: Path) -> None:
    g = Gateway("g1")
    landing.land([g.open(), g.rows(contribution(0, "a", 1.0, 2.0), contribution(1440, None, 5.0))])
    table = DeltaTable(str(tmp_path / "landing" / FLOW))
    assert table.metadata().partition_columns == ["day"]
    names = [f.name for f in table.schema().fields]
    assert names[:8] == [
        "gateway", "epoch", "stream", "sequence", "flow_version", "lineage", "window_start", "window_end"
    ]  # fmt: skip
    assert names[8:] == [
        "source", "n", "t__count", "t__sum", "v__count", "v__mean", "v__m2", "lo", "hi", "total", "day"
    ]  # fmt: skip
    opening, *rows = sorted(read(tmp_path, f"landing/{FLOW}"), key=lambda r: (r["sequence"], str(r["day"])))
    assert opening["day"] is None
    assert '"parent": null' in opening["lineage"]
    assert [str(r["day"]) for r in rows] == ["2024-10-04", "2024-10-05"]
    assert rows[0]["window_start"].isoformat() == "2024-10-04T00:00:00+00:00"
    assert (rows[0]["t__sum"], rows[0]["v__m2"], rows[1]["source"]) == (3.0, 0.5, None)


def test_what_landed_already_is_left_out(landing: Landing, tmp_path: Path) -> None:
    g = Gateway("g1")
    batches: list[LandingBatch] = [g.open(), g.rows(contribution(0, "a", 1.0)), g.rows(contribution(0, "b", 1.0))]
    landing.land(batches[:2])
    for _ in range(2):
        report = landing.land(batches)
    assert report.commits == 0
    assert [r[3] for r in landed_rows(tmp_path)] == [2, 3]


def test_nothing_lands_after_a_gap(landing: Landing, tmp_path: Path) -> None:
    g = Gateway("g1")
    batches: list[LandingBatch] = [g.open(), g.rows(contribution(0, "a", 1.0)), g.rows(contribution(0, "b", 1.0))]
    report = landing.land([batches[0], batches[2]])
    assert report.versions == {key_of(batches[0]): 1}
    assert landed_rows(tmp_path) == []


def test_empty_batch_passes_its_number(landing: Landing) -> None:
    g = Gateway("g1")
    batches: list[LandingBatch] = [g.open(), g.rows()]
    assert landing.land(batches).versions[key_of(batches[0])] == 2
    assert Landing(landing.root).version(key_of(batches[0])) == 2


def test_wrong_row_goes_to_quarantine_and_the_others_land(landing: Landing, tmp_path: Path) -> None:
    g = Gateway("g1")
    wrong = contribution(0, "b", 1.0)
    wrong[5] = float("inf")
    report = landing.land([g.open(), g.rows(contribution(0, "a", 1.0), wrong, ["short"])])
    assert (report.rows, report.refused_rows) == (1, 2)
    kept = read(tmp_path, "quarantine")
    assert [(r["gateway"], r["sequence"]) for r in kept] == [("g1", 2)] * 2
    assert any("t__sum: expected a finite number" in r["reason"] and "Infinity" in r["row"] for r in kept)
    assert landed_rows(tmp_path) == [("g1", 1 << 32, 0, 2, "a")]


def test_batch_with_other_columns_goes_to_quarantine_and_passes_its_number(landing: Landing, tmp_path: Path) -> None:
    g = Gateway("g1")
    batches: list[LandingBatch] = [g.open(), g.rows([1], columns=("x",)), g.rows(contribution(0, "a", 1.0))]
    report = landing.land(batches)
    assert report.versions[key_of(batches[0])] == 3
    assert [r["sequence"] for r in read(tmp_path, "quarantine")] == [2]
    assert [r[3] for r in landed_rows(tmp_path)] == [3]


def test_flow_without_a_usable_opening_goes_to_quarantine_whole(landing: Landing, tmp_path: Path) -> None:
    g = Gateway("g1")
    refused = RefusedBatch(**g.number(0), reason="schema: expected a map, got 5", payload=b"\x81")
    rows = g.rows(contribution(0, "a", 1.0))
    report = landing.land([refused, rows])
    assert report.versions[key_of(rows)] == 2
    assert not (tmp_path / "landing").exists()
    assert {r["reason"].split(":")[0] for r in read(tmp_path, "quarantine")} == {
        "schema",
        f"epoch {g.epoch} was not opened, or its opening batch was refused",
    }
    # A collector that starts later knows it too.
    assert Landing(str(tmp_path)).land([g.rows(contribution(0, "a", 1.0))]).versions[key_of(rows)] == 3


def test_new_aggregate_evolves_the_table(landing: Landing, tmp_path: Path) -> None:
    old = Gateway("g1")
    landing.land([old.open(), old.rows(contribution(0, "a", 1.0))])
    new = Gateway("g1", epoch=2 << 32, schema=Schema(60.0, SCHEMA.keys, (*SCHEMA.aggregates, ("top", "max"))))
    landing.land([new.open(old.epoch, {0: 2}), new.rows([*contribution(1, "a", 4.0), 4.0])])
    # A collector that still knows the old columns goes on with them.
    Landing(str(tmp_path)).land([old.rows(contribution(2, "a", 1.0))])
    rows = {r["window_start"].minute: r["top"] for r in read(tmp_path, f"landing/{FLOW}") if not r["lineage"]}
    assert rows == {0: None, 1: 4.0, 2: None}


def test_gaps_stand_in_their_table_in_order_with_rows(landing: Landing, tmp_path: Path) -> None:
    g = Gateway("g1")
    batches: list[LandingBatch] = [g.open(), g.gap(rows=None), g.rows(contribution(0, "a", 1.0)), g.gap("quota", 7)]
    report = landing.land(batches)
    assert report.versions[key_of(batches[0])] == 4
    assert {(r["sequence"], r["rows"]) for r in read(tmp_path, "gaps")} == {(2, None), (4, 7)}
    assert Landing(str(tmp_path)).land(batches).commits == 0


def test_drops_stand_in_their_table_once_in_order_with_rows(landing: Landing, tmp_path: Path) -> None:
    g = Gateway("g1")
    batches: list[LandingBatch] = [g.open(), g.drops(), g.rows(contribution(0, "a", 1.0)), g.gap()]
    many = g.drops(*((f"o{n}", "late", n) for n in range(1, 257)))
    batches.append(many)
    for again in (landing, landing, Landing(str(tmp_path))):
        report = again.land(batches)
        assert report.versions[key_of(many)] == 5
    assert report.commits == 0
    rows = read(tmp_path, "drops")
    assert sorted((r["sequence"], r["operator"], r["reason"], r["count"]) for r in rows if r["sequence"] < 5) == [
        (2, "in", "bad_payload", 2),
        (2, "minute", "late", 1),
    ]
    assert sum(r["count"] for r in rows if r["sequence"] == 5) == sum(range(1, 257))
    (first, *_) = rows
    assert (first["gateway"], first["flow"], first["epoch"], first["stream"]) == ("g1", FLOW, g.epoch, 0)
    assert (first["flow_version"], first["day"]) == (1, first["received"].date())


def test_a_gap_beside_its_epoch_s_opening_is_said_once_whoever_comes_first(tmp_path: Path) -> None:
    g = Gateway("g1")
    opened = g.open()
    gap = GapBatch(**g.number(1), reason="quota", rows=1)
    other = Landing(str(tmp_path))
    before = Gateway("g2")
    other.land([before.open(), before.gap()])
    meanwhile: list[LandingBatch] = [gap, opened]

    def guard() -> None:
        while meanwhile:
            other.land([meanwhile.pop()])

    report = Landing(str(tmp_path), guard=guard).land([opened, gap])
    assert report.versions == {key_of(opened): 1, key_of(gap): 1}
    assert len([row for row in read(tmp_path, "gaps") if row["gateway"] == "g1"]) == 1


def test_a_gap_whose_number_nobody_came_to_note_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    g = Gateway("g1")
    batches: list[LandingBatch] = [g.open(), g.gap(), g.rows([1], columns=("x",)), g.gap()]
    append = Table.append
    for table in ("gaps", "quarantine", "gaps"):

        def dies_after(to: Table, *arguments: Any, table: str = table) -> None:
            append(to, *arguments)
            if to.uri.endswith(table):
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(Table, "append", dies_after)
            with pytest.raises(Killed):
                Landing(str(tmp_path)).land(batches)
    assert Landing(str(tmp_path)).land(batches).versions == {key_of(batches[0]): 4}
    assert [len(read(tmp_path, name)) for name in (f"landing/{FLOW}", "gaps", "quarantine")] == [1, 2, 1]


def test_known_tells_the_streams_of_the_greatest_epoch_of_each_flow(landing: Landing) -> None:
    old, new, away = Gateway("g1"), Gateway("g1", epoch=7 << 32), Gateway("g1", flow="water")
    landing.land([old.open(), new.open(), new.rows(contribution(0, "a", 1.0)), away.open()])
    # Stream 2 may land before stream 1 does; stream 3 cannot.
    landing.land([new.rows(contribution(0, "b", 1.0), stream=2)])
    landing.land([Gateway("g2").open()])
    assert Landing(landing.root).known("g1") == {
        ("g1", FLOW, 7 << 32, 0): 2,
        ("g1", FLOW, 7 << 32, 2): 1,
        ("g1", "water", 1 << 32, 0): 1,
    }


def test_collector_that_lost_a_race_decides_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another collector lands the same results between this one's check and its write."""
    g = Gateway("g1")
    batches: list[LandingBatch] = [g.open(), g.rows(contribution(0, "a", 1.0)), g.rows(contribution(0, "b", 1.0))]
    mine, other = Landing(str(tmp_path)), Landing(str(tmp_path))
    append, races, racing = Table.append, iter([1, 2]), False

    def raced(table: Table, *arguments: Any) -> None:
        nonlocal racing
        if not racing and (n := next(races, None)) is not None:
            racing = True
            other.land(batches[: n + 1])
            racing = False
        append(table, *arguments)

    monkeypatch.setattr(Table, "append", raced)
    assert mine.land(batches).versions[key_of(batches[0])] == 3
    assert [r[3] for r in landed_rows(tmp_path)] == [2, 3]
    assert len([r for r in read(tmp_path, f"landing/{FLOW}") if r["lineage"]]) == 1


def test_stale_handle_conflicts_only_over_the_same_stream(tmp_path: Path) -> None:
    data = pa.table({"x": [1], "day": pa.array([1], pa.date32())})
    one, two = Table(str(tmp_path / "t")), Table(str(tmp_path / "t"))
    one.append(data, {"a": 1})
    two.refresh()
    one.append(data, {"a": 2})
    two.append(data, {"b": 1})
    one.refresh()
    one.append(data, {"b": 2})
    with pytest.raises(CommitConflict):
        two.append(data, {"b": 2})


class Killed(BaseException):
    """Stands for the death of the process."""


def one_of_each_kind(g: Gateway, window: int) -> list[Callable[[], LandingBatch]]:
    """Makers of batches: good, with one wrong row, a gap, drops, refused whole."""
    good, wrong = contribution(window, "a", 1.0), contribution(window, "b", 1.0)
    wrong[3] = -1
    return [
        lambda: g.rows(good),
        lambda: g.rows(good, wrong),
        g.gap,
        lambda: g.drops(("in", "bad_payload", 1)),
        lambda: g.rows([1], columns=("x",)),
    ]


@settings(max_examples=examples(8, 15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deaths=st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=4), seed=st.integers(0, 2**32))
def test_death_between_any_two_commits_neither_loses_nor_doubles(
    deaths: list[tuple[int, bool]], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Batches for all four tables; the process dies before or after some commit, and the outbox sends all again."""
    root = tmp_path_factory.mktemp("root")
    rng = random.Random(seed)
    gateways = [Gateway("g1"), Gateway("g2")]
    batches: list[LandingBatch] = []
    for g in gateways:
        batches.append(g.open())
        for i in range(6):
            batches.append(one_of_each_kind(g, i)[rng.randrange(5)]())
    append = Table.append
    for after, before in [*deaths, (10**9, True)]:
        left = [after]

        def dying(
            table: Table, *arguments: Any, left: list[int] = left, before: bool = before, append: Any = append
        ) -> None:
            left[0] -= 1
            if left[0] < 0 and before:
                raise Killed
            append(table, *arguments)
            if left[0] < 0:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Table, "append", dying)
            try:
                Landing(str(root)).land(batches)
            except Killed:
                continue
    numbers = [(r["gateway"], r["sequence"]) for r in read(root, f"landing/{FLOW}")]
    numbers += [(r["gateway"], r["sequence"]) for name in ("gaps", "drops") for r in read(root, name)]
    whole = [r for r in read(root, "quarantine") if "columns: expected" in r["reason"]]
    single = [(r["gateway"], r["sequence"]) for r in read(root, "quarantine") if "columns" not in r["reason"]]
    numbers += [(r["gateway"], r["sequence"]) for r in whole]
    assert sorted(numbers) == [(g.name, n) for g in gateways for n in range(1, 8)]
    assert len(single) == len(set(single)) == sum(1 for b in batches if isinstance(b, RowsBatch) and len(b.rows) == 2)


def test_unreadable_table_is_an_error_that_names_it(tmp_path: Path) -> None:
    log = tmp_path / "landing" / FLOW / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("no json")
    report = Landing(str(tmp_path)).land([Gateway("g1").open()])
    assert report.failed.keys() == {FLOW}
    assert f"landing/{FLOW}: expected a Delta table" in report.failed[FLOW]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("looks", range(3))
def test_what_another_collector_lands_between_two_looks_is_not_refused(tmp_path: Path, looks: int, there: bool) -> None:
    """A number that is seen as taken says that its epoch was opened: whatever of it another landed meanwhile."""
    g = Gateway("g1")
    first: list[LandingBatch] = [g.open(), g.gap()]
    rows = g.rows(contribution(0, "a", 1.0))
    mine, other = Landing(str(tmp_path)), Landing(str(tmp_path))
    if there:
        other.land([Gateway("g0").open()])
    refresh, seen = Table.refresh, [0]

    def looked(table: Table) -> bool:
        exists = refresh(table)
        seen[0] += 1
        if seen[0] == looks + 1:
            other.land(first)
        return exists

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "refresh", looked)
        report = mine.land([*first, rows])
    assert (report.versions[key_of(rows)], report.refused_batches) == (3, 0)
    assert [r[3] for r in landed_rows(tmp_path)] == [3]
