"""Access rules of the central broker by topic, as a Mosquitto ACL file. Pure.

Collector and gateways believe what a topic says of its sender: a result of gateway g1 is one that was published under
g1's name, an acknowledgement is one that stands under `@acks`. The broker's rules are what makes that true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgert.core.text.model_topic import model_topic
from edgert.core.text.revoked_topic import revoked_topic

AccessRule = tuple[str, str]
"""("read" or "write", topic filter)."""


def gateway_rules(fleet: str, gateway: str) -> list[AccessRule]:
    """A gateway writes under its own name only, and reads what is meant for it. `gateway`: its name, or `%u`."""
    own = f"edgert/v1/{fleet}/{gateway}"
    reads = ("config", "flows/+", "models/+", "cmd/+")
    # flows/+: what it accepted is written back to a broker that lost it
    writes = (
        "status",
        "config/state",
        "flows/+",
        "flows/+/state",
        "models/+/state",
        "update/state",
        "crl/state",
        "answers/#",
    )
    return [
        *(("read", f"{own}/{below}") for below in reads),
        ("read", model_topic(fleet, "+")),
        ("read", revoked_topic(fleet)),
        ("read", f"edgert/v1/{fleet}/@acks/{gateway}"),
        *(("write", f"{own}/{below}") for below in writes),
        ("write", f"edgert/v1/{fleet}/@results/+/{gateway}/+"),
    ]


def central_rules(fleet: str) -> list[AccessRule]:
    """Collectors and central jobs: they alone acknowledge."""
    base = f"edgert/v1/{fleet}"
    return [
        ("read", f"{base}/@results/#"),
        ("write", f"{base}/@acks/+"),
        ("write", f"{base}/@collector/+/status"),
        ("write", f"{base}/@alerts/+"),
        ("write", model_topic(fleet, "+")),
        ("write", model_topic(fleet, "+", "+")),
        ("read", f"{base}/+/models/+/state"),
    ]


def operator_rules(fleet: str) -> list[AccessRule]:
    """People and programs that deploy: they see all, and write what gateways answer to."""
    base = f"edgert/v1/{fleet}"
    writes = ("config", "flows/+", "models/+", "cmd/+")
    return [
        ("read", f"{base}/#"),
        *(("write", f"{base}/+/{below}") for below in writes),
        ("write", model_topic(fleet, "+")),
        ("write", revoked_topic(fleet)),
    ]


def mosquitto_acl(fleet: str, gateways: Sequence[str], central: str, operators: Iterable[str]) -> str:
    """The text of an `acl_file`. Without `gateways` every user may do what a gateway of the user's name may."""
    parts = [_ACL_HEAD.format(fleet=fleet)]
    if not gateways:
        parts.append("# Gateways: the user name is the gateway's id.\n" + _lines("pattern", gateway_rules(fleet, "%u")))
    parts += [_user(name, gateway_rules(fleet, name)) for name in gateways]
    parts.append(_user(central, central_rules(fleet)))
    parts += [_user(name, operator_rules(fleet)) for name in operators]
    return "\n".join(parts)


_ACL_HEAD = """\
# Access to the central broker of fleet {fleet}: `acl_file` of Mosquitto, made by `edgert fleet acl`.
# It needs `allow_anonymous false` and a `password_file`, or client certificates with `use_identity_as_username true`.
"""


def _user(name: str, rules: Iterable[AccessRule]) -> str:
    return f"user {name}\n{_lines('topic', rules)}"


def _lines(word: str, rules: Iterable[AccessRule]) -> str:
    return "".join(f"{word} {how} {topic}\n" for how, topic in rules)
