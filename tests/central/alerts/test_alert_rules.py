"""Documents of alert rules: what they say, and every fault of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgert.central.alerts.rules import OUTSIDE, SILENT, AlertRule, load, parse
from edgert.core.errors import DocumentError, EdgertError

QUIET = """
[rules.quiet-sensor]
flow = "city-air"
kind = "silent"
keys = ["source"]
after_s = 600
"""
ODD = """
[rules.odd-value]
flow = "city-air"
kind = "outside-quantile"
column = "t"
high = 0.99
"""


def faults(text: str) -> dict[str, tuple[str, str]]:
    with pytest.raises(DocumentError) as caught:
        parse(text)
    return {p.path: (p.expected, p.got) for p in caught.value.problems}


def test_short_rules_have_defaults_for_all_else() -> None:
    assert parse(QUIET + ODD) == [
        AlertRule("quiet-sensor", "city-air", SILENT, keys=("source",), after_s=600, patience_s=3600.0),
        AlertRule("odd-value", "city-air", OUTSIDE, column="t", high=0.99, windows=3, least=100, days=1.0, margin=0.0),
    ]


def test_every_fault_is_told_with_its_path() -> None:
    found = faults("""
        also = 1
        [rules.a]
        flow = "City Air"
        kind = "silent"
        keys = ["so urce"]
        after = "10 min"
        patience_s = 0
        [rules.b]
        flow = "air"
        kind = "outside-quantile"
        low = 0.9
        high = 0.1
        windows = 1.5
        of = 7
        [rules.c]
        flow = "air"
        kind = "outside-quantile"
        column = "t"
        margin = 1
        [rules."D e"]
        kind = "noisy"
        """)
    assert found["also"] == ("only rules", "an unknown key")
    assert found["rules.a.flow"] == ("a flow's name", "'City Air'")
    assert found["rules.a.keys"][0] == "different names of keys of the flow, or gateway"
    assert found["rules.a.after"][0] == "a known key of silent (nearest: after_s)"
    assert found["rules.a.after_s"] == ("a number from 1 to 3.16224e+07", "none")
    assert found["rules.a.patience_s"][1] == "0"
    assert found["rules.b.column"] == ("the aggregate that is looked at", "none")
    assert found["rules.b.high"] == ("a number above low (0.9)", "0.1")
    assert found["rules.b.windows"] == ("an integer from 1 to 100", "1.5")
    assert found["rules.b.of"] == ("the name of an aggregate", "7")
    assert found["rules.c.high"] == ("low, high or both", "neither")
    assert found["rules.c.margin"][1] == "1"
    assert found["rules.D e"][1] == "'D e'"
    assert found["rules.D e.kind"] == ("one of silent, outside-quantile", "'noisy'")


@pytest.mark.parametrize("text", ["", "rules = 1", "[rules]", 'rules.a = "x"', "rules = [1]"])
def test_a_document_without_rules_is_refused(text: str) -> None:
    assert any(path.startswith("rules") for path in faults(text))


def test_files_are_one_set_of_rules(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(QUIET)
    (tmp_path / "b.toml").write_text(ODD)
    assert [r.name for r in load([tmp_path / "a.toml", tmp_path / "b.toml"])] == ["quiet-sensor", "odd-value"]
    (tmp_path / "b.toml").write_text(ODD + QUIET)
    with pytest.raises(EdgertError, match=r"b.toml: rules.quiet-sensor: expected a name of its own"):
        load([tmp_path / "a.toml", tmp_path / "b.toml"])
    with pytest.raises(EdgertError, match="expected a readable file"):
        load([tmp_path / "c.toml"])
