import re
from pathlib import Path

from edgert.runtime.metrics import METRICS, samples
from edgert.runtime.metrics.__main__ import HEAD
from edgert.runtime.metrics.bounded import MOST_SERIES, OTHERS
from edgert.runtime.metrics.metric import markdown
from tests.status_example import example_status, judged

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


def by_name(status: object) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for sample in samples(status):  # type: ignore[arg-type]
        found.setdefault(sample.metric.name, {})[sample.labels] = sample.value
    return found


def test_every_metric_finds_its_value_in_a_full_status() -> None:
    assert set(by_name(example_status())) == {metric.name for metric in METRICS}


def test_values_carry_their_labels_and_base_units() -> None:
    found = by_name(example_status())
    assert found["edgert_operator_rows_in_total"][("air", "valid", "filter")] == 90
    assert found["edgert_dropped_rows_total"] == {
        ("air", "in", "ahead of time (kept)"): 26.0,
        ("air", "valid", "bad row"): 7.0,
    }
    assert found["edgert_operator_failures_total"][("air", "valid", "filter")] == 3
    assert found["edgert_operator_retries_total"][("air", "valid", "filter")] == 2
    assert found["edgert_operator_dead_letters_total"][("air", "valid", "filter")] == 1
    assert found["edgert_checkpoint_last_seconds"] == {(): 0.0025}
    assert found["edgert_cpu_ratio"] == {(): 0.125}
    assert found["edgert_ingest_connected"] == {(): 1.0}


def test_the_level_of_each_part_is_that_of_the_status() -> None:
    status = example_status()
    assert set(by_name(status)["edgert_part_level"].values()) == {0.0}
    status["central"] |= {"connected": False, "outbox_rows": 5, "unacknowledged_s": 61.0}
    status["flows"][0] |= {"outbox_rows": 5, "unacknowledged_s": 61.0}
    found = by_name(judged(status))["edgert_part_level"]
    assert (found["central", ""], found["flow", "air"], found["sensors", ""]) == (2.0, 1.0, 0.0)


def test_what_is_unknown_is_left_out_instead_of_being_zero() -> None:
    status = example_status()
    status["central"]["last_ack_age_s"] = None
    del status["checkpoint"]
    found = by_name(status)
    assert "edgert_central_last_ack_age_seconds" not in found
    assert "edgert_checkpoint_commits_total" not in found
    assert "edgert_outbox_rows" in found


def test_an_empty_status_gives_only_the_info_metric() -> None:
    assert set(by_name({})) == {"edgert_gateway_info", "edgert_summed_series"}


def test_of_too_many_series_the_last_are_told_as_one_and_how_many_they_are() -> None:
    """100 operators of 64 copies, or many flows: names are not ours, so their number is bounded here."""
    status = example_status()
    (operator, *_) = status["flows"][0]["operators"]
    many = [{**operator, "name": f"o{n}", "rows_in": 2, "queue_age_s": float(n)} for n in range(MOST_SERIES + 100)]
    status["flows"][0]["operators"] = many
    found = by_name(status)
    rows = found["edgert_operator_rows_in_total"]
    assert len(rows) == MOST_SERIES + 1
    assert rows[OTHERS, OTHERS, OTHERS] == 200
    assert sum(rows.values()) == 2 * len(many)
    assert found["edgert_operator_queue_age_seconds"][OTHERS, OTHERS, OTHERS] == MOST_SERIES + 99
    operators = [name for name in found if name.startswith("edgert_operator_") and len(found[name]) > 1]
    assert found["edgert_summed_series"] == {(): 100 * len(operators)}


def test_the_text_of_100_operators_in_100_flows_is_bounded() -> None:
    status = example_status()
    (flow,) = status["flows"]
    operators = [{**flow["operators"][0], "name": "o" * 60 + str(n)} for n in range(100)]
    status["flows"] = [{**flow, "name": "f" * 60 + str(n), "operators": operators} for n in range(1_000)]
    assert sum(len(str(sample.labels)) + 60 for sample in samples(status)) < 3_000_000


def test_names_follow_the_prometheus_rules() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"edgert_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        if metric.unit in ("seconds", "bytes", "ratio"):
            assert metric.unit in metric.name, metric.name
        assert metric.doc.endswith("."), metric.name


def test_no_name_is_declared_twice() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)


def test_the_page_in_docs_is_the_one_generated_from_the_declarations() -> None:
    assert DOCS.read_text() == markdown(HEAD, METRICS), "run: python -m edgert.runtime.metrics > docs/metrics.md"
