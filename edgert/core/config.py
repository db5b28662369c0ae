"""Typed configuration: one description of each setting gives parser, environment variable, sample file and docs.

A settings class is a frozen dataclass of sections; a section is a frozen dataclass whose fields are made by `setting`:

    @dataclass(frozen=True, slots=True)
    class Web:
        '''The page on the board.'''
        port: int = setting(8080, doc="TCP port to listen on", minimum=0, maximum=65535)

    @dataclass(frozen=True, slots=True)
    class Settings:
        web: Web = section(Web)

The environment wins over the file: `[web] port` is `EDGERT_WEB_PORT`. Field types are `str`, `int`, `float`, `bool` and
`tuple[str, ...]` (a list of strings; in the environment separated by commas).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from edgert.core.errors import DocumentError, EdgertError, Problem, show
from edgert.core.text_files import text_untrusted
from edgert.core.toml import literal

S = TypeVar("S")
_KEY: Final = "edgert.setting"
_SECTION: Final = "edgert.section"
PREFIX: Final = "EDGERT"
_TRUE: Final = frozenset(("1", "true", "yes", "on"))
_FALSE: Final = frozenset(("0", "false", "no", "off"))


@dataclass(frozen=True, slots=True)
class Setting:
    """Properties of one setting beside its name, type and default."""

    doc: str
    unit: str = ""
    secret: bool = False
    """Never shown: not by `repr`, not in an error, not in a log."""
    secret_file: bool = False
    """The path of a file whose content is shown nowhere."""
    path: bool = False
    """A path, or a list of paths: in a file a relative one counts from the folder of that file."""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any], str | None] | None = None
    """A further rule: says what was expected if the value is wrong, else None."""


@dataclass(frozen=True, slots=True)
class SettingEntry:
    """One setting with its place, as docs and samples list it."""

    section: str
    name: str
    kind: type
    default: Any
    about: Setting

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"{PREFIX}_{self.section}_{self.name}".upper()


def setting(
    default: Any,
    *,
    doc: str,
    unit: str = "",
    secret: bool = False,
    secret_file: bool = False,
    path: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    check: Callable[[Any], str | None] | None = None,
) -> Any:
    """A field of a section. `unit` is shown in docs; bounds are inclusive; `secret` values are shown nowhere, and of a
    `secret_file`, which is a `path`, its path alone."""
    about = Setting(doc, unit, secret, secret_file, path or secret_file, minimum, maximum, choices, check)
    return dataclasses.field(default=default, repr=not secret, metadata={_KEY: about})


def section(cls: type[S], doc: str = "") -> S:
    """A field of a settings class that holds the section `cls`. `doc` replaces the class's docstring in docs."""
    text = doc or " ".join((cls.__doc__ or "").split())
    return dataclasses.field(default_factory=cls, metadata={_SECTION: text})


def sections(cls: type[Any]) -> Iterator[tuple[str, type[Any], str]]:
    """(name, class, doc) of each section of a settings class, in order of declaration."""
    types = get_type_hints(cls)
    for f in dataclasses.fields(cls):
        yield f.name, types[f.name], f.metadata[_SECTION]


def entries(cls: type[Any]) -> Iterator[SettingEntry]:
    """Every setting of a settings class, in order of declaration."""
    for name, part, _ in sections(cls):
        types = get_type_hints(part)
        for f in dataclasses.fields(part):
            kind = tuple if types[f.name] == tuple[str, ...] else types[f.name]
            yield SettingEntry(name, f.name, kind, f.default, f.metadata[_KEY])


def load(cls: type[S], path: Path | str | None, env: Mapping[str, str]) -> S:
    """The settings of class `cls` from the TOML file at `path` (None: no file), then from `env`.

    Raises `DocumentError` with every fault found in both, `EdgertError` when the file cannot be read.
    """
    if path is None:
        return parse(cls, "", env)
    try:
        text = text_untrusted(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise EdgertError(f"{path}: expected a readable configuration file: {error.strerror or error}") from error
    return parse(cls, text, env, where=str(path), folder=Path(path).absolute().parent)


def parse(
    cls: type[S], text: str, env: Mapping[str, str], where: str = "configuration", folder: Path | None = None
) -> S:
    """Works as `load`, from TOML `text` that was read from `where`. Relative paths in it count from `folder` (None:
    from the current one, as those of the environment do)."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DocumentError(where, [Problem("file", "TOML", str(error))]) from error
    problems: list[Problem] = []
    known = {e.path: e for e in entries(cls)}
    values = {
        path: _from(folder, value) if folder and known[path].about.path else value
        for path, value in _from_file(document, cls, known, problems)
    }
    values.update(_from_env(env, known, problems))
    if problems:
        raise DocumentError(where, problems)
    parts = {
        name: part(**{e.name: values[e.path] for e in known.values() if e.section == name and e.path in values})
        for name, part, _ in sections(cls)
    }
    return cls(**parts)


def _from_file(
    document: Mapping[str, Any], cls: type[Any], known: Mapping[str, SettingEntry], problems: list[Problem]
) -> Iterator[tuple[str, Any]]:
    names = [name for name, _, _ in sections(cls)]
    for name, table in document.items():
        if name not in names:
            problems.append(_unknown(name, "section", names))
        elif not isinstance(table, dict):
            problems.append(Problem(name, f"a table [{name}]", show(table)))
        else:
            for key, raw in table.items():
                entry = known.get(f"{name}.{key}")
                if entry is None:
                    problems.append(
                        _unknown(f"{name}.{key}", "setting", [e for e in known if e.startswith(f"{name}.")])
                    )
                elif (value := _checked(entry, raw, entry.path, problems)) is not None:
                    yield entry.path, value


def _from(folder: Path, value: Any) -> Any:
    """A path, or several, from a folder; what is empty or an address stays as it is."""
    if isinstance(value, tuple):
        return tuple(_from(folder, one) for one in value)
    return value if not value or "://" in value else str(folder / value)


def left_behind(file: Path | str | None, setting: str, value: str, has: str) -> str:
    """Returns what to do about data that was made while a relative folder of a settings file counted from the current
    folder: the folder there has `has`, and `value`, the one beside the settings file, lacks it. Empty where all is
    well."""
    if file is None:
        return ""
    section_name, _, name = setting.partition(".")
    written = tomllib.loads(text_untrusted(Path(file).read_bytes(), str(file))).get(section_name, {}).get(name)
    if not written or "://" in written or value != str(Path(file).absolute().parent / written):
        return ""
    old = Path.cwd() / written
    if (Path(value) / has).exists() or not (old / has).exists():
        return ""
    return (
        f"{file}: {setting} = {show(written)} counts from the folder of this file: expected {has} in {value}, found it "
        f"in {old}; move that folder there, or write {setting} = {show(str(old))}"
    )


def _from_env(
    env: Mapping[str, str], known: Mapping[str, SettingEntry], problems: list[Problem]
) -> Iterator[tuple[str, Any]]:
    by_variable = {e.variable: e for e in known.values()}
    prefixes = tuple({f"{PREFIX}_{e.section.upper()}_" for e in known.values()})
    for variable, text in env.items():
        entry = by_variable.get(variable)
        if entry is None:
            # EDGERT_ variables without one of our sections may belong to another program of ours.
            if variable.startswith(prefixes):
                problems.append(_unknown(variable, "variable", list(by_variable)))
            continue
        value = _checked(entry, _from_text(entry.kind, text), variable, problems)
        if value is not None:
            yield entry.path, value


def _unknown(name: str, noun: str, candidates: list[str]) -> Problem:
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    hint = f" (nearest: {near[0]})" if near else f" ({', '.join(candidates)})"
    return Problem(name, f"a known {noun}{hint}", "an unknown one")


def _from_text(kind: type, text: str) -> Any:
    """The value that an environment variable's text means; the text itself if it does not parse."""
    if kind is str:
        return text
    if kind is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind is bool:
        lower = text.strip().lower()
        return lower in _TRUE if lower in _TRUE | _FALSE else text
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        return text


def _checked(entry: SettingEntry, raw: object, path: str, problems: list[Problem]) -> Any:
    """`raw` as the setting's type, or None after a problem was noted."""
    value = _typed(entry.kind, raw)
    expected = _expectation(entry) if value is None else _broken_rule(entry, value)
    if expected is None:
        return value
    problems.append(Problem(path, expected, "another value (not shown)" if entry.about.secret else show(raw)))
    return None


def _typed(kind: type, raw: object) -> Any:
    """`raw` if it is of `kind`, else None. A whole number may stand for a float; a boolean is never a number."""
    if kind is float and isinstance(raw, int | float) and not isinstance(raw, bool):
        return float(raw) if math.isfinite(raw) else None
    if kind is tuple:
        whole = isinstance(raw, list) and all(isinstance(item, str) for item in raw)
        return tuple(raw) if whole and isinstance(raw, list) else None
    return raw if type(raw) is kind else None


def _broken_rule(entry: SettingEntry, value: Any) -> str | None:
    about = entry.about
    if about.choices and value not in about.choices:
        return (about.check(value) if about.check else None) or _expectation(entry)
    if about.minimum is not None and value < about.minimum:
        return _expectation(entry)
    if about.maximum is not None and value > about.maximum:
        return _expectation(entry)
    return about.check(value) if about.check else None


_KINDS: Final = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    tuple: "a list of strings",
}


def _expectation(entry: SettingEntry) -> str:
    about = entry.about
    if about.choices:
        return f"one of {', '.join(about.choices)}"
    text = _KINDS[entry.kind]
    if about.minimum is not None and about.maximum is not None:
        return f"{text} from {_plain(about.minimum)} to {_plain(about.maximum)}"
    if about.minimum is not None:
        return f"{text} of at least {_plain(about.minimum)}"
    return f"{text} of at most {_plain(about.maximum)}" if about.maximum is not None else text


def _plain(bound: float) -> str:
    """A bound in digits, without an exponent."""
    return str(int(bound)) if bound == int(bound) else repr(bound)


def sample(cls: type[Any]) -> str:
    """A documented TOML file with every setting at its default, commented out."""
    lines = [
        "# Every setting at its default. Remove the '# ' before a line to change it.",
        "# The environment wins over this file: [section] name is EDGERT_SECTION_NAME.",
        "# A relative path counts from the folder of this file, in the environment from the current folder.",
    ]
    for name, _, doc in sections(cls):
        lines += ["", *textwrap.wrap(doc, 116, initial_indent="# ", subsequent_indent="# "), f"[{name}]"]
        for e in entries(cls):
            if e.section == name:
                lines += textwrap.wrap(_details(e), 116, initial_indent="## ", subsequent_indent="##   ")
                lines.append(f"# {e.name} = {literal(e.default)}")
    return "\n".join(lines) + "\n"


def _details(entry: SettingEntry) -> str:
    about = entry.about
    notes = [f"{about.unit}"] if about.unit else []
    if about.choices or about.minimum is not None or about.maximum is not None:
        notes.append(_expectation(entry))
    return about.doc + (f" ({'; '.join(notes)})" if notes else "")


def document(cls: type[Any], level: int = 2) -> str:
    """The settings as Markdown: a heading of `level` and a table for each section."""
    parts: list[str] = []
    for name, _, doc in sections(cls):
        rows = [
            f"| `{e.name}` | `{literal(e.default)}` | {e.about.unit} | {_cell(e)} | `{e.variable}` |"
            for e in entries(cls)
            if e.section == name
        ]
        head = [f"{'#' * level} `[{name}]`", "", doc, "", "| setting | default | unit | meaning | environment |"]
        parts.append("\n".join([*head, "| --- | --- | --- | --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def _cell(entry: SettingEntry) -> str:
    text = _details(dataclasses.replace(entry, about=dataclasses.replace(entry.about, unit="")))
    return text.replace("|", "\\|")
