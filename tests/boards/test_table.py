"""A table of boards: what a line becomes, and how a wrong one is told without holding up the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.boards.table import boards_untrusted, common_untrusted
from edgert.core.errors import DocumentError
from tests.provisioning.keys import KEY

COMMON = '[central]\nhost = "broker.farm"\n[agent]\nlabels = ["owner=ann"]\n'


def test_a_line_is_the_common_settings_with_its_own() -> None:
    common = common_untrusted(COMMON, "common.toml", "farm")
    text = "id, site, labels, network.address, central.port, web.enabled\ng1, barn, rack=2 gpu=no, 10.0.0.2/24, , no\n"
    (board,), problems = boards_untrusted(text, common, "farm")
    assert not problems
    assert (board.line, board.name) == (2, "g1")
    assert board.settings == {
        "gateway": {"id": "g1"},
        "central": {"host": "broker.farm"},
        "agent": {"labels": ["owner=ann", "site=barn", "rack=2", "gpu=no"]},
        "network": {"address": "10.0.0.2/24"},
        "web": {"enabled": False},
    }
    assert common["agent"]["labels"] == ["owner=ann"]


def test_a_board_has_several_ssh_keys_and_its_own_wireless_network() -> None:
    head = "id,ssh.keys,wifi.name,wifi.password"
    lines = [f'g1,"{KEY} me,{KEY}",plant, a password ', "g2,,plant,", f'g3,"{KEY};{KEY}",,']
    boards, problems = boards_untrusted("\n".join([head, *lines]), {}, "farm")
    (board,) = boards
    assert board.settings["ssh"] == {"keys": [f"{KEY} me", KEY]}
    assert board.settings["wifi"] == {"name": "plant", "password": " a password "}
    assert [one.path for one in problems] == ["line 3, wifi.password", "line 4, column ssh.keys"]


def test_semicolons_comments_and_quoted_cells_are_understood() -> None:
    boards, problems = boards_untrusted('# the barn\n\nid;labels\n"g1";"a=1 b=2"\n\ng2;\n', {}, "farm")
    assert [(board.line, board.name) for board in boards] == [(4, "g1"), (6, "g2")]
    assert not problems


@pytest.mark.parametrize(
    ("line", "where", "expected"),
    [
        ("g2,10.0.0.3,1,", "line 3, column network.address", "prefix length"),
        ("g2,,no,", "line 3, column central.port", "an integer from 1 to 65535"),
        ("g2,,70000,", "line 3, column central.port", "65535"),
        ("a b,,,", "line 3, column id", "letters, digits"),
        (",,,", "line 3, column id", "name of a board"),
        ("g2,,,barn", "line 3, column labels", "NAME=VALUE"),
        ("g2", "line 3", "4 cells"),
        ('g2,"10.0.0.9/24,,', "line 3", "cells separated by commas"),
        ("g1,,,", "line 3, gateway.id", "no other line has"),
        ("g2,10.0.0.2/8,,", "line 3, network.address", "no other line has"),
        ("broker.farm,,,", "line 3, gateway.id", "another name than that of the central broker"),
    ],
)
def test_a_wrong_line_is_named_and_the_others_go_on(line: str, where: str, expected: str) -> None:
    common = {"central": {"host": "broker.farm"}}
    text = f"id,network.address,central.port,labels\ng1,10.0.0.2/24,,\n{line}\ng9,,,\n"
    boards, problems = boards_untrusted(text, common, "farm")
    assert [board.name for board in boards] == ["g1", "g9"]
    assert [problem.path for problem in problems] == [where]
    assert expected in problems[0].expected


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("", "expected names of columns"),
        ("id,sitte", "such as site"),
        ("id,id", "a column once"),
        ("site,labels", "a column id"),
        ("id,identity.key", "an unknown one"),
    ],
)
def test_a_head_that_is_not_understood_is_refused(head: str, says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        boards_untrusted(f"{head}\ng1,x\n" if head else head, {}, "farm")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "TOML"),
        ("[centrall]", "a table among"),
        ("[central]\nport = 0", "central.port: expected an integer"),
        ('[gateway]\nfleet = "other"', "the fleet of the CA"),
        ('[identity]\nkey = "x"', "no identity"),
    ],
)
def test_common_settings_are_checked_once(text: str, says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        common_untrusted(text, "common.toml", "farm")


@given(st.text(), st.text(alphabet='id,"; \n=gx1'))
def test_any_table_is_taken_or_refused_with_the_one_error(head: str, rest: str) -> None:
    for text in (head + rest, f"id,labels\n{rest}\n{head}"):
        try:
            boards_untrusted(text, {}, "farm")
        except DocumentError:
            continue
