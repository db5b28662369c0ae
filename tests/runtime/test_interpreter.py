"""The interpreter's switch interval is given back, whatever happens."""

from __future__ import annotations

import sys

import pytest

from edgert.runtime.interpreter import switching


def fail(during: float) -> None:
    with switching(during):
        assert sys.getswitchinterval() == pytest.approx(during)
        raise KeyError


def test_the_interval_holds_meanwhile_and_is_given_back() -> None:
    before = sys.getswitchinterval()
    with switching(0.25):
        with pytest.raises(KeyError):
            fail(0.5)
        assert sys.getswitchinterval() == pytest.approx(0.25)
    assert sys.getswitchinterval() == before
