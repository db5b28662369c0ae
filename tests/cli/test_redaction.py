"""Texts of `edgert diagnostics`: secrets are found in every form, and samples of payloads are cut out."""

from __future__ import annotations

import base64
import html
import json
import re
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from edgert.cli.diagnostics.redaction import (
    CUT,
    REDACTED,
    Redactor,
    named_secrets,
    secrets_in,
    without_payloads,
    without_secrets,
)
from edgert.core.config import entries, sample
from edgert.core.settings.board import BoardSettings
from edgert.core.settings.programs import PROGRAMS
from edgert.core.text.key_lines import key_line
from edgert.operators.sources.source import BadPayload
from gateway.status.all_dropped import AllDropped
from tests.status_example import example_status

KEY = bytes(range(200, 232))
PASSWORD = 'hall "7" & gräßlich/way\\'
PEM = f"-----BEGIN PRIVATE KEY-----\n{base64.b64encode(KEY * 3).decode()}\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize("settings", [*PROGRAMS.values(), BoardSettings])
def test_a_setting_with_the_name_of_a_secret_is_declared_as_one(settings: type) -> None:
    like_a_secret = re.compile(r"pass|secret|key|token|cred|psk|pin$")
    public = {"ssh.keys"}
    for entry in entries(settings):
        if like_a_secret.search(entry.name) and entry.path not in public:
            assert entry.about.secret or entry.about.secret_file, f"{entry.path}: secret or secret_file?"


@pytest.mark.parametrize(
    "text",
    [
        f"user g1, {PASSWORD}, refused",
        json.dumps({"a": [PASSWORD]}),
        json.dumps({"a": [PASSWORD]}, ensure_ascii=False),
        f"expected a word, found {PASSWORD!r}",
        f"https://host/?q={quote(PASSWORD, safe='')}",
        f"https://host/?q={quote(PASSWORD)}",
        f"https://host/?q={quote_plus(PASSWORD)}",
        f"https://host/?q={quote_plus(PASSWORD, safe='/')}",
        f"https://host/?q={quote(PASSWORD, safe='').lower()}",
        f"https://host/?q={quote_plus(PASSWORD).lower()}",
        json.dumps(PASSWORD).replace("/", r"\/"),
        json.dumps(PASSWORD, ensure_ascii=False).replace("/", r"\/"),
        json.dumps(PASSWORD).replace("00e4", "00E4").replace("00df", "00DF"),
        json.dumps(json.dumps({"a": PASSWORD})),
        json.dumps(json.dumps({"a": PASSWORD}, ensure_ascii=False), ensure_ascii=False),
        html.escape(PASSWORD),
        html.escape(PASSWORD, quote=False),
        base64.b64encode(PASSWORD.encode()).decode(),
        base64.b64encode(f"g1:{PASSWORD}".encode()).decode(),
        base64.urlsafe_b64encode(f"g:{PASSWORD}?".encode()).decode(),
        PASSWORD.encode().hex(),
        PASSWORD.encode().hex().upper(),
    ],
)
def test_a_known_secret_is_found_in_every_form(text: str) -> None:
    clean = Redactor({PASSWORD}).text(text)
    assert REDACTED in clean
    for form in ("hall", "lich", "way", "68616c6c", "d2F5", "aGFsbC"):
        assert form.lower() not in clean.lower()


@pytest.mark.parametrize(
    "shown", [key_line(KEY), KEY.hex(), repr(KEY), base64.urlsafe_b64encode(KEY).decode(), base64.b64encode(b"x" + KEY)]
)
def test_a_key_is_found_as_the_line_of_its_file_and_as_its_bytes(shown: object) -> None:
    clean = Redactor(secrets_in(f"# of farm\n{key_line(KEY)}\n")).text(f"key {shown!s} is no key")
    assert len(clean) < len(f"key {REDACTED} is no key") + 12
    assert clean.startswith("key ")
    assert clean.endswith(" is no key")


def test_the_text_of_a_whole_key_file_is_found_in_hexadecimal_and_base64() -> None:
    text = f"{key_line(KEY)}\n{key_line(KEY[::-1])}\n"
    redactor = Redactor(secrets_in(text))
    assert len(redactor.text(text.encode().hex())) < 2 * len(REDACTED) + 8
    assert len(redactor.text(base64.b64encode(text.encode()).decode())) < 2 * len(REDACTED) + 8


def of_a_service(text: str) -> str:
    """`text` as a journal shows it of a program that wrote it line by line."""
    return "".join(f"\n2026-11-28T01:30:00+0000 g1 app[7]: {line}" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        PEM,
        repr(PEM),
        json.dumps(PEM),
        PEM.replace("\n", " ⏎ "),
        PEM[:60],
        PEM.replace("\n", "\n      "),
        PEM.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,8D6A\n\n", 1),
        of_a_service(PEM),
        of_a_service(PEM[:100]),
    ],
)
def test_a_private_key_is_cut_out_though_it_is_not_known(text: str) -> None:
    clean = Redactor(()).text(f"before: {text}, after")
    assert REDACTED in clean
    assert clean.startswith("before: ")
    assert clean.endswith(", after")
    assert "PRIVATE" not in clean
    assert base64.b64encode(KEY).decode()[:20] not in clean


def test_a_private_key_whose_beginning_is_not_in_the_log_is_cut_out() -> None:
    assert Redactor(()).text(f"{of_a_service(PEM)[90:]}\nthe next line") == f"{REDACTED}\nthe next line"


def test_a_certificate_and_what_follows_the_name_of_a_private_key_stay() -> None:
    text = "expected -----BEGIN PRIVATE KEY-----, got -----BEGIN CERTIFICATE-----\nnext\n"
    assert Redactor(()).text(text) == text.replace("-----BEGIN PRIVATE KEY-----", REDACTED)


def test_lines_of_a_private_key_are_secrets_and_those_of_every_key_are_not() -> None:
    assert secrets_in(PEM) == {PEM.splitlines()[1]}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("amqp://g1:pa@ss@host/x", f"amqp://{REDACTED}@host/x"),
        ("see https://host/path and me@host", "see https://host/path and me@host"),
        ('password = "a b" # no', f'password = "{REDACTED}" # no'),
        (f"amqp://g1:{'p' * 600}@host/x", f"amqp://{REDACTED}@host/x"),
        ('amqp://g1:pa"ss@host/x', f"amqp://{REDACTED}@host/x"),
        ("wpa: psk=ab12 ok", f"wpa: psk={REDACTED}"),
        ("GET /x?token=abc&b=1", f"GET /x?token={REDACTED}"),
        ("GET /x?sig=abc&b=1", f"GET /x?sig={REDACTED}"),
        ("password=a,b\nnext", f"password={REDACTED}\nnext"),
        ("token: Bearer x", f"token: {REDACTED}"),
        ("Authorization: Bearer x", f"Authorization: {REDACTED}"),
        ('["Authorization: Bearer x", 1]', f'["Authorization: {REDACTED}", 1]'),
        ("db_pwd = x", f"db_pwd = {REDACTED}"),
        (r'"{\"password\": \"x\\\"y\", \"a\": 1}"', rf'"{{\"password\": \"{REDACTED}\", \"a\": 1}}"'),
        ('password = """x\ny""" # no', f'password = """{REDACTED}""" # no'),
        ("password = '''x''' # no", f"password = '''{REDACTED}''' # no"),
        ("{'password': b'x', 'a': 1}", f"{{'password': b'{REDACTED}', 'a': 1}}"),
        ('password = "x', f'password = "{REDACTED}'),
        ("password:\nnext", "password:\nnext"),
        ('{"token": null, "a": 1}', '{"token": null, "a": 1}'),
        ("signal: 3, design=4, signature: good", "signal: 3, design=4, signature: good"),
        ('"api_key": "abc",', f'"api_key": "{REDACTED}",'),
        ('password_file = "/etc/edgert/p"', 'password_file = "/etc/edgert/p"'),
        ("rauc: signature verification failed", "rauc: signature verification failed"),
        ("Accepted password for root", "Accepted password for root"),
    ],
)
def test_what_has_the_place_or_the_name_of_a_secret(text: str, clean: str) -> None:
    assert Redactor(()).text(text) == clean


@pytest.mark.parametrize("settings", PROGRAMS.values())
def test_remarks_of_the_sample_of_a_settings_file_are_no_secrets(settings: type) -> None:
    assert named_secrets(sample(settings)) == set()
    assert named_secrets('# password = "a b"\nkey_file = "/k"\n[http]\napi_key = "xyz" # see the wiki') == {
        "a b",
        "xyz",
    }


def test_values_without_quotes_are_secrets_with_and_without_the_rest_of_the_line() -> None:
    assert named_secrets("PASSWORD=abc # of hall 7") == {"abc", "abc # of hall 7"}
    assert named_secrets('password = """a"""\npsk = b\'c\'') == {"a", "c"}


def test_a_short_secret_is_replaced_where_it_is_a_word() -> None:
    assert Redactor({"abc", "}"}).text("abc, abcd, {abc}") == f"{REDACTED}, abcd, {{{REDACTED}}}"
    assert Redactor({"p#1"}).text("p#1, (p#1), p#12") == f"{REDACTED}, ({REDACTED}), p#12"


def test_a_secret_in_another_leaves_nothing_of_the_longer_one() -> None:
    assert Redactor({"hall", "hallway-7"}).text("to hallway-7") == f"to {REDACTED}"


def test_documents_lose_the_values_of_parameters_with_the_name_of_a_secret() -> None:
    document: dict[str, Any] = {
        "operators": {"s": {"type": "http", "api_key": {"a": 1}, "key_file": "/k", "keys": ["source"]}}
    }
    document["operators"]["h"] = {"headers": {"Authorization": "Bearer x"}, "signal": 1}
    assert without_secrets(document) == {
        "operators": {
            "s": {"type": "http", "api_key": REDACTED, "key_file": "/k", "keys": ["source"]},
            "h": {"headers": {"Authorization": REDACTED}, "signal": 1},
        }
    }


@pytest.mark.parametrize(
    "text",
    [
        f"flow f, in: malformed payload {BadPayload('s/a', b'v=4711', 'expected JSON, got 6 bytes 4711')}",
        str(AllDropped("valid", "bad row", 20, 12.0, "v: expected a number, in {'v': '4711'}")),
        str(AllDropped("valid", "bad row", 20, 12.0, "4711 is odd")),
        "operator valid failed (3 times so far): ValueError('4711')",
        "v: none of the last 7 values is a usable number, e.g. '4711'",
        "a turn failed ⏎ Traceback ⏎   File 'a.py' ⏎ ValueError: could not convert string: '4711'",
    ],
)
def test_samples_of_payloads_are_cut_out_of_logs_and_reasons(text: str) -> None:
    clean = without_payloads(f"{text}\nthe next line, 4712")
    assert "4711" not in clean
    assert CUT in clean
    assert clean.startswith(text[:12])
    assert clean.endswith("\nthe next line, 4712")


def test_a_status_loses_results_and_samples_and_nothing_else() -> None:
    status = example_status()
    flow = status["flows"][0]
    flow["malformed"] = {"topic": "s/a", "beginning": "4711", "reason": "expected JSON, got '4711'", "age_s": 1.0}
    flow["never_seen"] = [{"operator": "in", "fields": ["v"], "came": {"v": "4711"}, "seen": ["w"]}]
    flow["latest"] = [{"source": "a", "mean": 4711.5}]
    flow["dropping"] = [["valid", "bad row", 20, 12.0, "in {'v': 4711}"]]
    clean = without_payloads(status)
    assert "4711" not in str(clean)
    told = clean["flows"][0]
    assert told["malformed"] == {"topic": "s/a", "beginning": CUT, "reason": f"expected JSON, got {CUT}", "age_s": 1.0}
    assert told["never_seen"] == [{"operator": "in", "fields": ["v"], "came": CUT, "seen": ["w"]}]
    assert {name for name in told if told[name] != flow[name]} == {
        "malformed", "never_seen", "latest", "dropping", "unusable",
    }  # fmt: skip
    assert {name for name in clean if clean[name] != status[name]} == {"flows"}


@pytest.mark.parametrize(
    "piece",
    [
        "://",
        "all of its last ",
        'token="',
        "token='",
        'token="""',
        r"token=\"",
        'token="\\',
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY",
        "⏎ a: '",
        "psk \t",
        "got",
        ", in {",
    ],
)
def test_a_long_line_of_a_hostile_device_takes_no_quadratic_time(piece: str) -> None:
    text = piece * (400_000 // len(piece))
    assert len(Redactor({"hallway"}).text(str(without_payloads(text)))) < 3 * len(text)
