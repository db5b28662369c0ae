"""How many examples a property test tries: fewer in `make test` than in `make test-all`."""

from __future__ import annotations

import os
from typing import Final

PROFILE: Final = os.environ.get("EDGERT_TEST_EXAMPLES", "quick")


def examples(quick: int, thorough: int) -> int:
    """For `max_examples` of a test whose number is not that of the profiles in `conftest.py`."""
    return thorough if PROFILE == "thorough" else quick
