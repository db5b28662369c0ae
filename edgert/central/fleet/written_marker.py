"""Which fleet table a stream has written, and up to which write: noted beside the checkpoint of the stream.

The checkpoint says what of the landing table was read, and the fleet table is taken to have all of that. One that was
put back from an older copy, or was removed and made anew, has less, and nothing in the checkpoint tells.
"""

from __future__ import annotations

import json
from typing import Final

from pyarrow import fs

from edgert.central.spark.stream_reader import opened
from edgert.central.tables.table import Table, told

APPLICATION: Final = "edgert.fleet"
"""Delta's application of the transaction identifiers by which writes to fleet tables are numbered."""
_NOTE: Final = "fleet-written.json"


class Written:
    """`checkpoint`: the stream's, a folder or URI. Raises `TableError`."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._last: tuple[str, int] | None = None

    def note(self, table: str, number: int) -> None:
        """A batch was written: Delta's id of the table, and the number of its newest write. To be called before Spark
        notes the batch as done. A stream that has no checkpoint gets no note."""
        if (table, number) == self._last:
            return
        with told(self._checkpoint, "what was written could not be noted"):
            filesystem, folder = opened(self._checkpoint)
            if filesystem.get_file_info(folder).type != fs.FileType.Directory:
                return
            with filesystem.open_output_stream(f"{folder}/{_NOTE}.new") as file:
                file.write(json.dumps({"table": table, "number": number}).encode())
            filesystem.move(f"{folder}/{_NOTE}.new", f"{folder}/{_NOTE}")
        self._last = table, number

    def forget_written(self) -> None:
        """Makes `why_incomplete` name every table, until the next note."""
        self.note("", 0)

    def why_incomplete(self, table: Table, application: str) -> str:
        """Returns why a table, as of its last refresh, cannot have all that was written; empty if it has.

        `application`: the name under which its writes are numbered. Without a note, or with one that a power cut tore,
        nothing is known, and the answer is empty.
        """
        with told(self._checkpoint, "what was written could not be read"):
            filesystem, folder = opened(self._checkpoint)
            if filesystem.get_file_info(f"{folder}/{_NOTE}").type != fs.FileType.File:
                return ""
            with filesystem.open_input_stream(f"{folder}/{_NOTE}") as file:
                text = file.read()
        try:
            note = json.loads(text)
            known, number = str(note["table"]), int(note["number"])
        except (ValueError, LookupError, TypeError):
            return ""
        if table.id() == known and table.version(application) >= number:
            return ""
        folder, name = table.uri.rsplit("/", 2)[-2:]
        return f"{folder}/{name} was removed or put back from an older copy"
