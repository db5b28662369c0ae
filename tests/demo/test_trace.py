import json
from pathlib import Path

import pytest

from edgert.demo.trace import TraceError, parse_line_untrusted, read

LINE = (
    '1422748800000,{"e":[{"u":"string","n":"source","sv":"dev/1"},{"v":"8","u":"far","n":"temperature"}],'
    '"bt":1422748800000}'
)


def test_a_line_gives_topic_and_payload_as_recorded() -> None:
    message = parse_line_untrusted(LINE, "t:1")
    assert message.topic == "city/dev-1/sense"
    assert json.loads(message.payload(None)) == json.loads(LINE.partition(",")[2])


def test_the_time_can_be_that_of_the_publication() -> None:
    record = json.loads(parse_line_untrusted(LINE, "t:1").payload(1_800_000_000.5))
    assert record["bt"] == 1_800_000_000_500
    assert record["e"] == json.loads(LINE.partition(",")[2])["e"]


@pytest.mark.parametrize("line", ["", "12", "x,{}", "12,{", "12,[]", '12,{"e":3}', '{"e":[]}'])
def test_other_layouts_are_refused_with_place_and_expectation(line: str) -> None:
    with pytest.raises(TraceError, match=r'^t:7: expected <milliseconds>,\{"e":\[\.\.\.\],"bt":\.\.\.\}, got '):
        parse_line_untrusted(line, "t:7")


def test_a_device_without_a_name_has_one_all_the_same() -> None:
    assert parse_line_untrusted('1,{"e":[{"n":"t","v":1}]}', "t:1").topic == "city/unnamed/sense"


def test_empty_lines_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(f"{LINE}\n\n{LINE}\n")
    assert len(list(read(file))) == 2


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="expected a readable trace"):
        list(read(tmp_path / "none"))
