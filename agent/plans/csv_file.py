"""CSV files of any of the usual separators: the text to the rows of one table."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.plans.sheets import Table, has_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.plans.source import Source

SEPARATORS = (",", ";", "\t", "|")


def separator(source: Source) -> str | None:
    """Return the separator by which a header is found in the first rows, None if there is none."""
    head = io.StringIO(source.head, newline="").readlines()
    tables = (
        (one, _table(source, enumerate(csv.reader(head, delimiter=one), 1))) for one in SEPARATORS
    )
    return next((one for one, table in tables if has_header(table)), None)


def table(source: Source) -> Table:
    """Return the rows; they are read by commas where no separator gives a header."""
    return _table(source, _Rows(source, separator(source) or ","))


def _table(source: Source, rows: Iterable[tuple[int, list[str]]]) -> Table:
    return Table(source.place, rows, strict=True)


class _Rows:
    """The rows of the file, read anew by each iteration; a broken quotation raises Malformed."""

    def __init__(self, source: Source, delimiter: str) -> None:
        self._source = source
        self._delimiter = delimiter

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        lines = io.StringIO(self._source.text, newline="")
        row = 0
        try:
            for row, cells in enumerate(
                csv.reader(lines, delimiter=self._delimiter, strict=True), 1
            ):
                yield row, cells
        except csv.Error as error:
            place = self._source.place._replace(row=row + 1)
            raise Malformed(f"{place}: no CSV: {error}") from error
