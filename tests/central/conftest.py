"""One Spark session for all tests that need it: its start takes longer than they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as the fleet job makes it."""
    from edgert.central.session import make_session

    session = make_session("edgert-tests")
    yield session
    session.stop()
