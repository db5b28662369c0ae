"""One Delta table as collector and fleet job use it: check and append through one handle, so that no race goes
unnoticed.

`deltalake` refuses a commit when another one with the same transaction identifier came after the handle was loaded;
lower and equal versions it accepts. So whoever appends refreshes, reads the versions, and appends, all with one
handle; on `CommitConflict` all of it again.

Whatever the storage, Arrow or `deltalake` raise comes out of here as `TableError` or `CommitConflict`, nothing else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field, PrimitiveType
from deltalake.schema import Schema as DeltaSchema
from pyarrow import fs

from edgert.central.tables.fsync import Durable, torn_commit
from edgert.central.tables.query import batches, query
from edgert.core.errors import EdgertError

log = logging.getLogger(__name__)

TIME: Final = pa.timestamp("us", tz="UTC")
_ATTEMPTS: Final = 20
_MOST_ENCODERS: Final = 1_000
"""Columns of files in one commit, all of which are written at a time: each takes some 90 kB with a dictionary and
compression, 9 kB without. Compaction brings both back."""
_DEFAULT: Final = WriterProperties(compression="SNAPPY")
_PLAIN: Final = WriterProperties(
    compression="UNCOMPRESSED", default_column_properties=ColumnProperties(dictionary_enabled=False)
)
T = TypeVar("T")


class CommitConflict(EdgertError):
    """Another writer came first: look at the table again, then decide again."""


class TableError(EdgertError):
    """A table could not be read or written; the message says which and why."""

    def __init__(self, text: str, uri: str = "") -> None:
        super().__init__(text)
        self.uri = uri
        """Address of the table, where the fault is of one table."""


@contextmanager
def told(uri: str, what: str, cause: Callable[[str], str] = lambda uri: "") -> Iterator[None]:
    """Errors of what is done within, as `CommitConflict` or `TableError`: `uri`: `what`: why. `cause`: looks for the
    cause, and returns what is to be said behind it."""
    try:
        yield
    except EdgertError:
        raise
    except CommitFailedError as error:
        raise CommitConflict(why(error)) from error
    # deltalake raises OSError, ValueError, TypeError and plain Exception for what a storage or a log file is.
    except Exception as error:
        raise TableError(f"{uri}: {what}: {why(error)}{cause(uri)}", uri) from error


def why(error: Exception) -> str:
    """An error of `deltalake` in a line: its errors may bring the stack of its native code."""
    return " ".join(re.split(r"\n\s*0: ", str(error), maxsplit=1)[0].split()) or type(error).__name__


class Table:
    """A Delta table that may not exist yet. `uri` is a folder or a URI that Delta supports."""

    def __init__(self, uri: str, partition_by: str = "day") -> None:
        self.uri = uri
        self._partition_by = partition_by
        self._handle: DeltaTable | None = None
        self._durable = Durable(uri)
        self.loads = 0
        """How often it was loaded anew: what was known of it before may not be in it any more."""

    def refresh(self) -> bool:
        """Load what others committed. Returns whether the table exists. Raises `TableError`."""
        known, self._handle = self._handle, None  # what could not be refreshed is loaded anew
        with told(self.uri, "expected a Delta table that can be read", torn_commit):
            if known is not None:
                known.update_incremental()
                self._handle = known
            elif DeltaTable.is_deltatable(self.uri):
                self._load(DeltaTable(self.uri))
        return self._handle is not None

    def _load(self, handle: DeltaTable) -> None:
        """Takes a handle of a table that may be another one than before: which commits of that are on the disk says
        nothing of this one's, which have the same numbers."""
        self._handle = handle
        self._durable = Durable(self.uri)
        self.loads += 1

    @contextmanager
    def _told(self, what: str = "could not be read") -> Iterator[None]:
        """Raises what `told` does, around a use of the handle. The one that failed is not used again: of a table that
        was removed, or put back from an older copy, it knows what is gone, and `refresh` does not always notice."""
        try:
            with told(self.uri, what):
                yield
        except TableError:
            self._handle = None
            raise

    def decide(self, how: Callable[[], T]) -> T:
        """Runs `how`, which looks at the refreshed table and writes; again when another writer came first. Returns its
        result. Raises `TableError`, and `CommitConflict` if others write all the time."""
        for _ in range(_ATTEMPTS):
            self.refresh()
            try:
                return how()
            except CommitConflict as error:
                log.debug("%s: another writer came first, deciding again: %s", self.uri, error)
        raise CommitConflict(f"{self.uri}: others write to it all the time")

    def settle(self) -> None:
        """All that the last refresh has seen outlives a power cut, whoever wrote it. Raises `TableError`."""
        if self._handle is not None:
            with self._told("could not be brought to the disk"):
                self._durable.reach(self._handle.version())

    def version(self, application: str) -> int:
        """The greatest number committed under a transaction identifier, as of the last refresh (0: none).

        Raises `TableError`, as all that follows does.
        """
        with self._told():
            return int((self._handle.transaction_version(application) if self._handle else None) or 0)

    def batches(self, columns: Sequence[str], where: str) -> Iterator[pa.RecordBatch]:
        """Works as `read`, for any number of rows; the table must exist, and its name in `where` is t."""
        assert self._handle is not None
        with self._told():
            yield from batches(self._handle, columns, where)

    def fields(self) -> list[pa.Field]:
        """The table's columns as of the last refresh (none if it does not exist)."""
        with self._told():
            return list(pa.schema(self._handle.schema().to_arrow())) if self._handle else []

    def read(self, columns: list[str], where: str) -> list[dict[str, Any]]:
        """Some columns of the rows for which an SQL condition holds, as of the last refresh."""
        if self._handle is None:
            return []
        with self._told():
            return query(self._handle, columns, where)

    def append(self, data: pa.Table, versions: Mapping[str, int]) -> None:
        """One commit: the rows, and a number per transaction identifier. Columns that are new evolve the table.

        Raises `CommitConflict` if it has to be decided anew, `TableError` if the table cannot be written.
        """
        numbers = [Transaction(application, version) for application, version in versions.items()]
        if self._handle is None:
            self._create(data, numbers)
            return
        # Beside others' commits; one of the same application is a conflict at once, for whoever read the versions.
        commit = CommitProperties(app_transactions=numbers, max_commit_retries=15)
        known = self.fields()
        names = {f.name for f in known}
        new = [f for f in data.schema if f.name not in names]
        with self._told("could not be written"):
            whole = _in_schema(data, pa.schema([*known, *new]))
            write_deltalake(
                self._handle, whole, mode="append", schema_mode="merge" if new else None, commit_properties=commit,
                writer_properties=self._encoding(whole),
            )  # fmt: skip

    def replace(self, data: pa.Table, versions: Mapping[str, int], where: str) -> None:
        """Works as `append`, but the rows for which the SQL expression `where` holds give way to the new ones."""
        numbers = [Transaction(application, version) for application, version in versions.items()]
        if self._handle is None:
            self._create(data, numbers)
            return
        commit = CommitProperties(app_transactions=numbers)
        with self._told("could not be written"):
            write_deltalake(self._handle, data, mode="overwrite", predicate=where, commit_properties=commit)

    def make(self, columns: Sequence[tuple[str, str]], properties: Mapping[str, str]) -> None:
        """The table, unless it exists; then the columns (name, Delta's type) and properties that it lacks."""
        fields = [Field(name, PrimitiveType(kind)) for name, kind in columns]
        if self._handle is None:
            with told(self.uri, "could not be created"):
                made = DeltaTable.create(
                    self.uri, DeltaSchema(fields), "ignore", self._partition_by, configuration=dict(properties)
                )
                self._load(made)
        has = {field.name for field in self.fields()}
        assert self._handle is not None
        with self._told("could not be altered"):
            if new := [field for field in fields if field.name not in has]:
                self._handle.alter.add_columns(new)
            if any(self.properties().get(name) != value for name, value in properties.items()):
                self._handle.alter.set_table_properties(dict(properties))

    def merge(self, data: pa.Table, same: str, delete: str, versions: Mapping[str, int]) -> None:
        """Works as `append`, but a row of `data` replaces the one for which `same` holds (columns s.x of `data`, t.x of
        the table), or deletes it, if `delete` holds of it."""
        assert self._handle is not None
        commit = CommitProperties(app_transactions=[Transaction(a, v) for a, v in versions.items()])
        with self._told("could not be written"):
            merge = self._handle.merge(data, same, source_alias="s", target_alias="t", commit_properties=commit)
            merge = merge.when_matched_delete(delete).when_matched_update_all()
            merge.when_not_matched_insert_all(f"NOT ({delete})").execute()

    def properties(self) -> dict[str, str]:
        """The table's properties as of the last refresh."""
        with self._told():
            return dict(self._handle.metadata().configuration) if self._handle else {}

    def id(self) -> str:
        """Delta's id of the table as of the last refresh ("" if it does not exist): no two have the same."""
        with self._told():
            return str(self._handle.metadata().id) if self._handle else ""

    def at(self) -> int:
        """The table's version as of the last refresh (-1 if it does not exist)."""
        return self._handle.version() if self._handle else -1

    def _create(self, data: pa.Table, numbers: list[Transaction]) -> None:
        # Table and first rows are one commit, so there is never a table whose rows say nothing about it. It is tried
        # once: where another writer creates the table first, a second try would append to his, and compare nothing.
        commit = CommitProperties(app_transactions=numbers, max_commit_retries=0)
        with told(self.uri, "could not be created"):
            try:
                write_deltalake(
                    self.uri, data, mode="error", partition_by=[self._partition_by], commit_properties=commit,
                    writer_properties=self._encoding(data),
                )  # fmt: skip
            except Exception as error:
                if DeltaTable.is_deltatable(self.uri):
                    raise CommitConflict(f"{self.uri} was created by another writer: {why(error)}") from error
                raise
            self._load(DeltaTable(self.uri))

    def _encoding(self, data: pa.Table) -> WriterProperties:
        files = pc.count_distinct(data[self._partition_by], "all").as_py()
        return _PLAIN if files * data.num_columns > _MOST_ENCODERS else _DEFAULT


def _in_schema(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """`data` with the columns of `schema` in their order; those it lacks are null."""
    have = set(data.schema.names)
    columns = [data[f.name].cast(f.type) if f.name in have else pa.nulls(data.num_rows, f.type) for f in schema]
    return pa.table(columns, schema=schema)


def join(root: str, *parts: str) -> str:
    """The folder or URI of a table under a root folder or URI."""
    return "/".join((root.rstrip("/"), *parts))


def list_tables(root: str, kind: str) -> list[str]:
    """The names of the tables under `root`/`kind`, sorted; none if there is no such folder. Raises `TableError`."""
    folder = join(root, kind)
    names = list_folders(root, kind)
    with told(folder, "expected a folder of tables that can be listed"):
        return [name for name in names if DeltaTable.is_deltatable(join(folder, name))]


def list_folders(root: str, kind: str) -> list[str]:
    """Works as `list_tables`, by one look: not all of them need be tables."""
    folder = join(root, kind)
    with told(folder, "expected a folder of tables that can be listed"):
        filesystem, path = fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
        found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)
