"""Numbers of things in a sentence."""


def counted(number: int, thing: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
