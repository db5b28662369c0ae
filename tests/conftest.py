"""What all tests share: a test whose needs are missing on this machine is skipped and says which."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

# A deadline per example would measure the other tests on this machine.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")

ROOT = Path(__file__).parents[1]


def _lack_of(marker: str) -> str | None:
    """What a test with this marker lacks on this machine, and how to get it; None if nothing."""
    if marker == "integration" and not shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return "Mosquitto is not installed (apt-get install mosquitto)"
    if marker == "spark" and subprocess.run([ROOT / "scripts/java-home"], capture_output=True, check=False).returncode:
        return "Java 17 or newer is not installed (apt-get install default-jre-headless)"
    if marker == "browser" and not (shutil.which("chromium") and shutil.which("chromedriver")):
        return "Chromium or its driver is not installed (apt-get install chromium chromium-driver)"
    if marker == "root" and os.geteuid() != 0:
        return "needs root"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacks = {marker: _lack_of(marker) for marker in ("integration", "spark", "browser", "root")}
    for item in items:
        for marker, lack in lacks.items():
            if lack and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=lack))
