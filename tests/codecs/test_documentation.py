"""The examples in docs/codecs.md run, and say what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "codecs.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_in_the_documentation_runs(example: str) -> None:
    assert "assert" in example
    exec(compile(example, str(PAGE), "exec"), {})  # noqa: S102 - our own page


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 3
