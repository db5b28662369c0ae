"""What a topic filter matches, level by level: tests compare the product's faster ways with this."""

from __future__ import annotations


def matches(text: str, topic: str) -> bool:
    """True if filter `text` matches `topic`. A leading wildcard does not match a topic that begins with `$`."""
    wanted, levels = text.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index >= len(levels) or level not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)
