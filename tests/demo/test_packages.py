"""The packages that `make demo` installs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_has_what_agents_need() -> None:
    """`--gateways 3` starts three; on a machine with the demo's packages only they ended at once."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    locked = (ROOT / "requirements" / "demo.txt").read_text()
    names = {re.split(r"[<>=]", wanted)[0] for wanted in extras["agent"]}
    assert {name for name in names if f"\n{name}==" not in locked} == set()
