"""Tests in namespaces are skipped where a process may make none."""

from __future__ import annotations

import pytest

from tests.lab import namespaces


@pytest.fixture(scope="session")
def may_make_namespaces() -> None:
    if reason := namespaces.lack():
        pytest.skip(reason)
