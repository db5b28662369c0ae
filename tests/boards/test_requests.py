"""The request for an update: all that comes from outside is either one, or refused with the reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.boards.requests import (
    ID,
    MOST_BYTES,
    URL,
    VERSION,
    UpdateRequest,
    read_request_untrusted,
    request_untrusted,
)
from edgert.core.errors import DocumentError, EdgertError

URL_OF = "http://updates.example:8000/edgert/update.raucb"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
NAMES = st.sampled_from(["id", "url", "version", "drain", "command"])


@given(
    st.from_regex(ID, fullmatch=True),
    st.from_regex(URL, fullmatch=True).filter(lambda url: len(url) <= 1000),
    st.just("") | st.from_regex(VERSION, fullmatch=True),
    st.booleans(),
)
def test_a_request_is_read_as_it_was_written(name: str, url: str, version: str, drain: bool) -> None:
    request = UpdateRequest(name, url, version, drain)
    assert read_request_untrusted(request.text().encode()) == request


@pytest.mark.parametrize(
    "url",
    [
        "", "/etc/passwd", "file:///etc/passwd", "ftp://host/x", "--conf=/tmp/x", "http://", "http://host", "HTTP://host/x",
        "http://user:secret@host/x", "http://host/x y", "http://host/x\n", "http://host/\x00", "http://ho st/x", "http://-x/y",
        "http://host/x#y", "https://host/ü", "http://host:123456/x", "http://host/" + "x" * 2000, "\nhttp://host/x",
        'http://host/"x', "http://host/`x`", None, 5, ["http://host/x"],
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: object) -> None:
    with pytest.raises(DocumentError, match="url") as refused:
        request_untrusted({"id": "1", "url": url})
    assert [problem.path for problem in refused.value.problems] == ["url"]


@pytest.mark.parametrize(
    "url", [URL_OF, "https://host/x", "http://10.0.2.2:8000/good.raucb?a=b&c=%20", "http://[fe80::1]:80/x", "http://h/"]
)
def test_an_address_of_a_bundle(url: str) -> None:
    assert request_untrusted({"id": "1", "url": url}) == UpdateRequest("1", url)


def test_every_fault_is_told() -> None:
    with pytest.raises(DocumentError) as refused:
        request_untrusted({"id": "", "url": "x", "version": "-v", "drain": 1, "run": "rm"})
    assert [problem.path for problem in refused.value.problems] == ["'run'", "id", "url", "version", "drain"]


@given(st.binary(max_size=MOST_BYTES + 10) | st.dictionaries(NAMES, JSON).map(lambda plain: json.dumps(plain).encode()))
def test_bytes_from_outside_are_a_sound_request_or_an_error(content: bytes) -> None:
    try:
        request = read_request_untrusted(content)
    except EdgertError:
        return
    assert URL.fullmatch(request.url)
    assert ID.fullmatch(request.id)
    assert request.version == "" or VERSION.fullmatch(request.version)


@given(st.data())
def test_a_request_that_was_changed_on_its_way_is_a_sound_one_or_an_error(data: st.DataObject) -> None:
    content = bytearray(UpdateRequest("a1", URL_OF, "2.0+1", True).text().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        request = read_request_untrusted(bytes(content))
    except EdgertError:
        return
    assert URL.fullmatch(request.url)
    assert not set(request.url) & set("\n\r\t \0\"'`") - {"'"}


@pytest.mark.parametrize("content", [b"[" * MOST_BYTES, b"null", b"[]", b'"x"', b"x" * (MOST_BYTES + 1), b"\xff"])
def test_what_is_no_object_is_refused(content: bytes) -> None:
    with pytest.raises(EdgertError, match="expected a request"):
        read_request_untrusted(content)
