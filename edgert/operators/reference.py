"""The parts of docs/flows.md that are made from the code: operators and functions."""

from __future__ import annotations

import re

from edgert.expr.functions import functions_markdown
from edgert.flow.schema import operators_markdown
from edgert.flow.spec import Registry
from edgert.operators.registry import REGISTRY


def fill(text: str, registry: Registry = REGISTRY) -> str:
    """`text` with what stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->` made anew."""
    for name, part in (("operators", operators_markdown(registry)), ("functions", functions_markdown())):
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"expected {begin} ... {end}, got a text without them")
        before, after = pattern.split(text, maxsplit=1)
        text = f"{before}{begin}\n\n{part}\n{end}{after}"
    return text
