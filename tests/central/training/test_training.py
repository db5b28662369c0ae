"""Training documents: what they say, and every fault of a wrong one."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from edgert.central.training.document import PARAMETERS, load, parse
from edgert.core.errors import DocumentError, EdgertError

GOOD = """
name = "air-quality"
kind = "decision_tree"
table = "fleet/city-air"
label = "ozone"
features = ["temperature", "humidity"]
"""


def faults(text: str) -> dict[str, tuple[str, str]]:
    with pytest.raises(DocumentError) as caught:
        parse(text)
    return {p.path: (p.expected, p.got) for p in caught.value.problems}


def test_a_short_document_has_defaults_for_all_else() -> None:
    training = parse(GOOD)
    assert (training.name, training.kind, training.table, training.label) == (
        "air-quality", "decision_tree", "fleet/city-air", "ozone"
    )  # fmt: skip
    assert (training.features, training.time, training.gateways) == (("temperature", "humidity"), "window_start", ())
    assert dict(training.parameters) == {name: b.default for name, b in PARAMETERS["decision_tree"].items()}
    now = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    assert training.range(now) == (None, now)


def test_the_range_is_days_back_or_between_two_times() -> None:
    now = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    assert parse(GOOD + "days = 30").range(now) == (dt.datetime(2026, 4, 1, tzinfo=dt.UTC), now)
    between = parse(GOOD + "since = 2026-01-01\nuntil = 2026-02-01T12:00:00+02:00").range(now)
    assert between == (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 2, 1, 10, tzinfo=dt.UTC))


def test_every_fault_is_told_with_its_path() -> None:
    found = faults(
        """
        name = "a/b"
        kind = "forest"
        table = "x"
        sql = "DELETE FROM x"
        label = "t"
        features = ["t", "h", "h"]
        days = -1
        holdout = "most"
        since = "2026-01-01"
        every_s = 1
        gateways = ["@all"]
        featurs = 1
        parameters = 3
        """
    )
    assert found.keys() == {
        "name", "kind", "table", "sql", "features", "days", "holdout", "since", "every_s", "gateways", "featurs",
        "parameters",
    }  # fmt: skip
    assert found["kind"][0] == "one of linear_regression, decision_tree"
    assert found["featurs"][0] == "a known key (nearest: features)"
    assert found["every_s"] == ("a number from 60 to 3.16224e+07", "1")


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ('features = ["ozone"]', "features"),
        ("days = 3\nsince = 2026-01-01", "since"),
        ("since = 2026-01-02\nuntil = 2026-01-01", "until"),
        ("until = 2026-01-01\nevery_s = 3600", "until"),
        ("[parameters]\nmax_depth = 2.5", "parameters.max_depth"),
        ("[parameters]\nregularization = 1", "parameters.regularization"),
    ],
)
def test_what_does_not_go_together(more: str, path: str) -> None:
    base = GOOD.replace('features = ["temperature", "humidity"]\n', "") if more.startswith("features") else GOOD
    assert path in faults(base + more)


def test_a_regression_has_no_more_fields_than_a_gateway_takes() -> None:
    many = f"features = {[f'f{n}' for n in range(25)]}"
    text = GOOD.replace('features = ["temperature", "humidity"]', many)
    assert len(parse(text).features) == 25
    assert faults(text.replace("decision_tree", "linear_regression"))["features"][1] == "25"


def test_the_guide_has_good_examples() -> None:
    text = (Path(__file__).parents[3] / "docs" / "models.md").read_text(encoding="utf-8")
    chapter = text[text.index("## Trained on the central side") :]
    table, query = (parse(e) for e in re.findall(r"^```toml\n(.*?)^```", chapter, re.DOTALL | re.MULTILINE))
    assert (table.every_s, table.days, dict(table.parameters)["regularization"]) == (86_400, 30, 0.01)
    assert query.sql
    for key, told in (("holdout", 0.2), ("least_rows", 100), ("time", "`window_start`")):
        assert re.search(rf"^\| `{key}` \|.*\| {told} \|$", chapter, re.MULTILINE), key
        assert getattr(parse(GOOD), key) == (told.strip("`") if isinstance(told, str) else told)
    for kind, parameters in PARAMETERS.items():
        names, defaults = re.search(
            rf"^\| `parameters` of `{kind}` \| (.*) \| (.*) \|$", chapter, re.MULTILINE
        ).groups()  # type: ignore[union-attr]
        assert re.findall(r"`(\w+)`", names) == list(parameters)
        assert defaults == ", ".join(f"{b.default:g}" for b in parameters.values())


def test_no_file_and_no_toml(tmp_path: Path) -> None:
    with pytest.raises(EdgertError, match="expected a readable file"):
        load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name =")
    with pytest.raises(DocumentError, match=r"bad\.toml"):
        load(tmp_path / "bad.toml")
