"""Which operators are the same in the next version of a flow."""

from __future__ import annotations

from typing import Any

from edgert.flow.document import from_plain
from edgert.flow.versions.heirs import Succession, succession
from edgert.operators.registry import REGISTRY

OPERATORS: dict[str, Any] = {
    "readings": {"type": "mqtt_source", "topic": "x/{source}"},
    "valid": {"type": "filter", "input": "readings", "where": "t > 0"},
    "by": {"type": "key_by", "input": "valid", "keys": ["source"]},
    "minute": {"type": "tumbling_window", "input": "by", "size_s": 60, "aggregates": {"n": "count()"}},
    "central": {"type": "ship", "input": "minute"},
}


def compared(**changed: Any) -> Succession:
    """`changed`: tables of operators, merged into those of `OPERATORS`; None: without it."""
    operators = {name: {**table, **(changed.pop(name, None) or {})} for name, table in OPERATORS.items()}
    operators |= changed
    old, new = (
        from_plain({"name": "f", "description": text, "operators": given}, REGISTRY)
        for text, given in (("a", OPERATORS), ("b", operators))
    )
    return succession(old, new, REGISTRY)


def test_all_operators_of_a_flow_with_another_description_keep_their_state() -> None:
    found = compared()
    assert dict(found.heirs) == {name: name for name in OPERATORS}
    assert found.kept == ("minute",)
    assert not found.lost
    assert not found.empty


def test_a_default_that_is_written_out_changes_nothing() -> None:
    assert compared(readings={"qos": 1, "retained": False}).kept == ("minute",)


def test_an_operator_behind_a_changed_one_loses_its_state_and_the_reason_names_it() -> None:
    found = compared(valid={"where": "t > 1"})
    assert dict(found.lost) == {"minute": "valid, before it, is changed"}
    assert found.empty == {"minute"}
    assert dict(found.heirs) == {"readings": "readings"}


def test_an_operator_that_is_changed_itself_loses_its_state() -> None:
    assert dict(compared(minute={"size_s": 30}).lost) == {"minute": "it is changed"}


def test_a_branch_beside_an_operator_leaves_its_state() -> None:
    more = {"type": "filter", "input": "readings", "where": "humidity > 5"}
    found = compared(wet=more, out={"type": "publish", "input": "wet", "topic": "y"})
    assert found.kept == ("minute",)
    assert not found.lost


def test_a_key_that_is_changed_empties_the_window_behind_it() -> None:
    assert dict(compared(by={"keys": ["room"]}).lost) == {"minute": "by, before it, is changed"}


def test_a_slot_changes_no_state() -> None:
    assert compared(minute={"slot": 1}).kept == ("minute",)


def test_another_name_of_an_operator_keeps_its_state_and_that_of_those_behind_it() -> None:
    operators = {name: dict(table) for name, table in OPERATORS.items()}
    operators["good"] = operators.pop("valid")
    operators["by"]["input"] = "good"
    operators["each"] = operators.pop("minute")
    operators["central"]["input"] = "each"
    old, new = (from_plain({"name": "f", "operators": given}, REGISTRY) for given in (OPERATORS, operators))
    found = succession(old, new, REGISTRY)
    assert found.heirs["valid"] == "good"
    assert found.heirs["minute"] == "each"
    assert found.kept == ("each",)
