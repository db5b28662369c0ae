"""Which operators there are, and that a broken package of someone else harms nobody."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgert.flow.spec import OperatorSpec
from edgert.operators.registry import REGISTRY, registry_of, with_installed

STATELESS = {"filter", "map", "select", "key_by", "annotate"}
OURS = (
    STATELESS
    | {"kalman", "sliding_regression", "interpolate", "bloom_filter", "distinct_count", "second_moment"}
    | {
        "mqtt_source",
        "tumbling_window",
        "count_window",
        "join_latest",
        "join_observations",
        "predict",
        "publish",
        "ship",
    }
)


def test_the_registry_knows_all_our_operators_and_their_words() -> None:
    assert set(REGISTRY) >= OURS
    for spec in REGISTRY.values():
        assert spec.doc, spec.type
        for parameter in spec.parameters:
            assert parameter.doc, (spec.type, parameter.name)
            unit = {"_s": "s", "_bytes": "bytes", "size": "rows"}
            ending = next((u for end, u in unit.items() if parameter.name.endswith(end)), "")
            assert parameter.unit == ending, (spec.type, parameter.name)


def test_two_operators_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="each operator type once, got x twice"):
        registry_of([OperatorSpec("x", "one"), OperatorSpec("x", "two")])


def test_installed_packages_add_operators_and_broken_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "third-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[edgert.operators]\ngood = third_operators:SPEC\nabsent = third_nowhere:SPEC\nagain = third_operators:AGAIN\n"
        "mute = third_operators:MUTE\nquits = third_quits:SPEC\n"
    )
    (tmp_path / "third_operators.py").write_text(
        "from edgert.flow.spec import OperatorSpec\n"
        "SPEC = OperatorSpec('third', 'Of someone else.', logic=print)\n"
        "AGAIN = [OperatorSpec('filter', 'Not this one.', logic=print)]\n"
        "MUTE = OperatorSpec('mute', 'Without logic.')\n"
    )
    (tmp_path / "third_quits.py").write_text("raise SystemExit('not on this machine')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "third_operators", raising=False)
    registry, failed = with_installed()
    assert registry["third"].doc == "Of someone else."
    assert registry["filter"] is REGISTRY["filter"]
    assert {name.split(" ")[0] for name in failed} == {"absent", "again", "mute", "quits"}
    assert "SystemExit: not on this machine" in failed.values()
    assert any("third_nowhere" in why for why in failed.values())
    assert any("expected mute to have logic" in why for why in failed.values())
