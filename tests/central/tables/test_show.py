"""Tables for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgert.central.landing.landing import Landing
from edgert.central.spark.session import check_master
from edgert.central.tables import show
from edgert.cli.main import main
from edgert.core.errors import EdgertError
from tests.central.results_examples import FLOW, Gateway, contribution


@pytest.fixture
def root(tmp_path: Path) -> str:
    g = Gateway("g1")
    rows = [contribution(i, source, float(i), 2.0) for i in range(5) for source in ("a", "b\n")]
    Landing(str(tmp_path)).land([g.open(), g.rows(*rows), g.gap(), g.drops()])
    return str(tmp_path)


def test_tables_are_listed_with_their_sizes(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["central", "tables", "--root", root]) == 0
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["table", "rows", "version", "files", "kB"]
    assert [line.split()[:3] for line in lines] == [
        [f"landing/{FLOW}", "11", "2"],
        ["gaps", "1", "0"],
        ["drops", "2", "0"],
    ]


def test_newest_windows_come_first_aligned(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["central", "show", FLOW, "--root", root, "--limit", "3", "--where", "source = 'a'"]) == 0
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "window_start", "results come before where they come from"
    at = head.index("window_start")
    assert [line[at : at + 20] for line in lines] == [
        "2024-10-04 00:04:00Z",
        "2024-10-04 00:03:00Z",
        "2024-10-04 00:02:00Z",
    ]


def test_a_table_fits_a_terminal_in_blocks_of_columns_and_a_pipe_has_whole_values(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show.print_table(["a", "payload"], [["b" * 60, "c" * 200]])
    assert capsys.readouterr().out.splitlines()[2] == f"{'b' * 60}  {'c' * 200}"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    show.print_table(["a", "b"], [[1, "x"]])
    assert capsys.readouterr().out == "a  b\n-  -\n1  x\n", "what fits comes as it is"
    show.print_table(["first", "n", "second", "long"], [["a" * 40, 1.5, "b" * 30, "c" * 60], ["d", 2, "e", "f"]])
    first, second, third = capsys.readouterr().out.split("\n\n")
    assert first.splitlines() == [
        f"#  {'first':40}    n", f"-  {'-' * 40}  ---", f"1  {'a' * 40}  1.5", f"2  {'d':40}    2",
    ]  # fmt: skip
    assert second.splitlines()[2:] == [f"1  {'b' * 30}", "2  e"]
    assert third.splitlines()[2:] == [f"1  {'c' * 39}…", "2  f"]
    assert main(["central", "show", FLOW, "--root", root]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 60
    assert "window_start" in shown


def test_before_the_first_fleet_rows_it_says_so_and_when_they_come(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["central", "show", FLOW, "--root", root]) == 0
    told = capsys.readouterr().err
    assert f"fleet/{FLOW} is not there yet" in told
    assert "writes the first fleet rows some 20 s after its start" in told
    assert "What landed is merged here, as it is read" in told
    assert main(["central", "show", f"landing/{FLOW}", "--root", root]) == 0
    assert capsys.readouterr().err == ""
    assert main(["central", "show", FLOW, "--root", str(tmp_path / "none")]) == 1
    assert "The first rows land some seconds after a flow's first window has closed" in capsys.readouterr().err


def test_control_characters_of_a_device_do_not_reach_the_terminal(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["central", "show", FLOW, "--root", root, "--where", "source <> 'a'"])
    assert " b· " in capsys.readouterr().out


def test_json_has_one_object_per_line(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["central", "show", FLOW, "--root", root, "--json", "--limit", "2", "--where", "n > 0"])
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [o["window_start"] for o in objects] == ["2024-10-04 00:04:00Z"] * 2


def test_json_of_no_rows_is_nothing(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["central", "show", FLOW, "--root", root, "--json", "--where", "n < 0"]) == 0
    assert capsys.readouterr().out == ""


def test_drops_are_shown_and_added_up(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["central", "show", "drops", "--root", root, "--json", "--where", "reason = 'late'"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["flow"], row["operator"], row["count"]) == (FLOW, "minute", 1)
    sql = "SELECT gateway, flow, operator, reason, sum(count) FROM drops GROUP BY 1, 2, 3, 4"
    assert main(["central", "query", sql, "--root", root, "--json"]) == 0
    found = [list(json.loads(line).values()) for line in capsys.readouterr().out.splitlines()]
    assert sorted(found) == [["g1", FLOW, "in", "bad_payload", 2], ["g1", FLOW, "minute", "late", 1]]


def test_unknown_table_lists_those_that_exist(root: str) -> None:
    with pytest.raises(EdgertError, match=rf"nearest: landing/{FLOW}\): landing/{FLOW}, gaps"):
        show.rows(root, "landing/airr")


def test_wrong_condition_says_which_columns_there_are(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["central", "show", FLOW, "--root", root, "--where", "nope = 1"]) == 1
    assert "expected a condition over window_start, window_end" in capsys.readouterr().err
    assert main(["central", "show", f"landing/{FLOW}", "--root", root, "--where", "nope = 1"]) == 1
    assert "expected a condition over gateway, epoch" in capsys.readouterr().err


def test_root_without_tables_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["central", "tables", "--root", str(tmp_path / "none")]) == 0
    assert "no tables in" in capsys.readouterr().err


def test_sql_is_answered_over_all_tables(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = show.sql_name(f"landing/{FLOW}")
    sql = f"SELECT source, count(*) AS c, max(n) FROM {name} l WHERE n > 0 GROUP BY source ORDER BY source"
    assert main(["central", "query", sql, "--root", root, "--json"]) == 0
    assert [json.loads(line)["c"] for line in capsys.readouterr().out.splitlines()] == [5, 5]
    sql = f"with g as (select 1 as x from gaps) SELECT x, x + 1 AS y FROM g, {name} LIMIT 1"
    assert show.select(root, sql) == (["x", "y"], [[1, 2]])


@pytest.mark.parametrize("sql", ["", "DROP TABLE gaps", "SELECT * FROM nothing", "SELECT nope FROM gaps", "SELECT ("])
def test_what_is_no_query_is_one_line_that_names_the_tables_or_what_it_must_be(
    sql: str, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["central", "query", sql, "--root", root]) == 1
    told = capsys.readouterr().err
    assert "gaps" in told or "SELECT or WITH" in told


def test_a_name_in_sql_that_two_tables_have_is_refused_with_both(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    for flow in ("city-air", "city_air"):
        Landing(root).land([Gateway("g1", flow=flow).open()])
    assert main(["central", "query", "SELECT count(*) FROM landing_city_air", "--root", root]) == 1
    told = capsys.readouterr().err
    assert "landing_city_air: expected the SQL name of one table" in told
    assert "got that of landing/city-air and of landing/city_air" in told
    assert main(["central", "query", "SELECT count(*) FROM gaps", "--root", root]) == 0


def test_columns_that_are_called_alike_all_come(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = show.sql_name(f"landing/{FLOW}")
    sql = f"SELECT a.source, b.source FROM {table} a JOIN {table} b ON a.window_start = b.window_start LIMIT 1"
    assert main(["central", "query", "--root", root, "--json", sql]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["source", "source_2"]


def test_a_query_where_no_tables_are_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["central", "query", "--root", str(tmp_path), "SELECT 1 FROM nothing"]) == 1
    assert f"{tmp_path} has none (did a collector run?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["show", FLOW, "--where", "window_start > 'yesterday'"], "a condition that can be answered: "),
        (["show", FLOW, "--where", "1 / (n - n) > 1"], "a condition that can be answered: "),
        (["show", FLOW, "--where", "n > 0 ORDER BY n"], "a condition over window_start, window_end"),
        (["show", FLOW, "--where", "n > 0 LIMIT 3"], "a condition over window_start, window_end"),
        (["query", "SELECT CAST(source AS INT) FROM TABLE"], "a query that can be answered: "),
        (["query", "SELECT 1 / 0 FROM TABLE"], "a query that can be answered: "),
        (["query", "SELECT (SELECT source FROM TABLE)"], "a query that can be answered: "),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistake_that_shows_only_on_values_is_not_told_as_a_damaged_table(
    command: list[str], wanted: str, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = f"landing/{FLOW}"
    command = [word.replace("TABLE", show.sql_name(table)) for word in command]
    assert main(["central", *command, "--root", root]) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert f"expected {wanted}" in told
    assert "from a copy" not in told
    if "answered" in wanted:
        assert told.endswith(f"; all of {table} can be read")


@pytest.mark.parametrize("where", ["n > 0 -- all", "n > 5 OR n > 0"])
def test_a_condition_is_one_expression_whatever_follows(where: str, root: str) -> None:
    assert len(show.rows(root, FLOW, 3, where)[1]) == 3


def test_of_two_tables_the_damaged_one_is_named_whatever_is_wrong_with_the_query(root: str) -> None:
    (file,) = Path(root, "gaps").rglob("*.parquet")
    file.unlink()
    with pytest.raises(EdgertError, match=rf"^{root}/gaps: expected a Delta table that can be read: .*not found"):
        show.select(root, f"SELECT 1 / 0 FROM gaps, {show.sql_name(f'landing/{FLOW}')}")


@pytest.mark.parametrize("damage", ["gone", "short", "log"])
def test_a_damaged_table_is_told_in_a_line_that_names_it_and_not_the_condition(
    root: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Path(root, "landing", FLOW)
    Landing(root).land([Gateway("g1", flow="whole").open()])
    for path in table.rglob("*.json" if damage == "log" else "*.parquet"):
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:40])
    sql = f"SELECT max(n) FROM {show.sql_name(f'landing/{FLOW}')}"
    for command in (["show", FLOW], ["show", FLOW, "--where", "n > 1"], ["query", sql]):
        assert main(["central", *command, "--root", root]) == 1
        (told,) = capsys.readouterr().err.splitlines()
        assert told.startswith(f"edgert: {table}: expected a Delta table that can be read: ")
        assert told.endswith("has to come back from a copy")
    assert main(["central", "tables", "--root", root]) == (damage == "log")
    assert "landing/whole" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["upkeep"], ["run", "--once"], ["readers"], ["leases"]])
def test_a_mistyped_root_is_told_and_not_made(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "mistyped"
    assert main(["central", *command, "--root", str(root)]) == 1
    assert f"{root}: expected a folder or URI with tables, found none" in capsys.readouterr().err
    assert not root.exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ["show", "air", "--limit", "9" * 23],
            "expected a whole number from 0 to 1000000000000, got '99999999999999999999999'",
        ),
        (["show", "air", "--limit", "9" * 5000], "expected a whole number from 0 to 1000000000000, got '999"),
        (["readers", "--register", ""], "--register: expected a reader's name, got ''"),
        (["readers", "--remove", ""], "--remove: expected a reader's name, got ''"),
        (["run", "--mast=local[2]"], "unrecognized arguments: --mast=local[2]"),
        *((["run", "--trigger-s", text], "expected seconds from 0 to 3600") for text in ("-5", "nan", "3601", "abc")),
        *(
            ([*verb, "--master", text], f"spark://HOST:PORT, yarn, k8s://...), got '{text}'")
            for verb in (["run"], ["rebuild", "air"], ["train", "air.toml"])
            for text in ("nonsense", "local[x]", "local[0]", "spark://h", "")
        ),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["central", *arguments])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("text", ["local", "local[*]", "local[2]", "local[2, 3]", "local-cluster[2,1,1024]",
                                  "spark://h:7077", "spark://a:1,b:2", "yarn", "k8s://https://h:443"])  # fmt: skip
def test_masters_that_spark_knows(text: str) -> None:
    assert check_master(text) == text


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("broker", "expected HOST[:PORT], such as"),
        ("root", "expected a folder or URI, got"),
    ],
)
def test_an_empty_option_of_the_collector_is_not_taken_for_none(
    option: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["central", "collect", f"--{option}", ""]) == 2
    assert f"--{option}: {why}" in capsys.readouterr().err
