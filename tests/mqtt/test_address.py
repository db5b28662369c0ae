from __future__ import annotations

import pytest

from edgert.core.errors import EdgertError
from edgert.mqtt.address import split_broker


@pytest.mark.parametrize(
    ("text", "expected"), [("h:1", ("h", 1)), ("h", ("h", 1883)), ("[::1]:5", ("::1", 5)), ("[::1]", ("::1", 1883))]
)
def test_a_broker_is_a_host_with_or_without_port(text: str, expected: tuple[str, int]) -> None:
    assert split_broker(text) == expected


def test_the_port_that_is_not_written_may_be_another() -> None:
    assert split_broker("h", 8883) == ("h", 8883)


@pytest.mark.parametrize("text", ["", ":1", "h:", "h:0", "h:x", "h:²", "h:70000"])
def test_a_broker_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(EdgertError, match=r"--broker: expected HOST\[:PORT\], such as broker.example:1883, got"):
        split_broker(text)
