"""The rows of one worksheet, by openpyxl's parser. Imported by who has openpyxl, which is optional.

ReadOnlyWorksheet.iter_rows is not used: it returns a row for each number up to the last, a million
for one formatted cell at the bottom, as wide as its last column, and it makes five objects for an
inline string, which openpyxl itself and pandas write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openpyxl.worksheet._reader import INLINE_STRING, WorkSheetParser
from openpyxl.xml.constants import SHEET_MAIN_NS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

MAX_COLUMNS = 128
MAX_ROW = 1_048_576  # Excel's own limit
_PLAIN = f"{{{SHEET_MAIN_NS}}}t"


class _Parser(WorkSheetParser):
    """Reads inline strings without formatting by itself."""

    def parse_cell(self, element: Element) -> dict[str, Any]:
        """Return value and column of a cell."""
        text = _plain_text(element) if element.get("t") == "inlineStr" else None
        if text is None:
            return super().parse_cell(element)
        element.set("t", "str")  # a value that the parser does not look for
        return super().parse_cell(element) | {"value": text}


def _plain_text(element: Element) -> str | None:
    """Return the text of an inline string; None for an empty, formatted or phonetic one."""
    inline = element.find(INLINE_STRING)
    is_plain = inline is not None and len(inline) == 1 and inline[0].tag == _PLAIN
    return inline[0].text if inline is not None and is_plain else None


def rows(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number and the values of each row with cells. Raises what openpyxl raises."""
    last = 0
    with sheet._get_source() as source:
        for number, cells in _parser(source, sheet).parse():
            if not last < number <= MAX_ROW:
                raise ValueError(f"row {number} below row {last}")
            last = number
            yield number, _values(cells)


def _parser(source: Any, sheet: Any) -> _Parser:
    book = sheet.parent
    return _Parser(
        source,
        sheet._shared_strings,
        data_only=True,
        epoch=book.epoch,
        date_formats=book._date_formats,
        timedelta_formats=book._timedelta_formats,
    )


def _values(cells: list[dict[str, Any]]) -> list[Any]:
    """Return the values by column."""
    found = {cell["column"]: cell["value"] for cell in cells if cell["column"] <= MAX_COLUMNS}
    return [found.get(column) for column in range(1, max(found, default=0) + 1)]
