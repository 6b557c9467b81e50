"""XLSX workbooks (ECMA-376) through openpyxl, in its read-only mode: their sheets.

openpyxl is an optional extra (`bwagent[plan]`): only a plan in a workbook needs it, and the image
does without. A formula counts by the value that was saved with it; one without is named where it
stands for a name. Hidden rows are read, and text that is struck through is left out, each with a
note.

Invariants:
- the expansion is bounded before anything is decompressed: zipfile reads no more of a member than
  its header claims;
- a document type declaration refuses the workbook, since the standard library expands entities;
- every row of a sheet, and every cell with a text, is read, or refuses the workbook.
  openpyxl's public rows leave out a row whose number does not rise, those below one that is too
  large, and cells to the right of the last one in the file: the rows are those of its parser.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Collection, Iterator
from datetime import datetime, time
from typing import Any
from xml.parsers import expat

from agent.cabling.plans.headers import MAX_COLUMNS
from agent.cabling.plans.model import UNSAVED, FilePlace, quoted
from agent.cabling.plans.source import PlanContent
from agent.errors import Malformed, not_installed

ZIP = b"PK\x03\x04"
OLE = b"\xd0\xcf\x11\xe0"  # an .xls workbook, or an encrypted .xlsx
MAX_EXPANDED = 256 << 20  # bytes of all members
MAX_MEMBERS = 2_000
STYLES, MAX_STYLES = "xl/styles.xml", 8 << 20  # bytes; openpyxl makes an object of each style
MAX_ROW = 1_048_576  # Excel's own limit
CONTENT_TYPES = "[Content_Types].xml"  # which part is the workbook
_TRUE = frozenset({"1", "true"})  # xsd:boolean
_PROLOG = 64 << 10  # bytes in which the first element of a part begins
# What openpyxl, zipfile and ElementTree raise for bytes that are no workbook.
_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, SyntaxError, ValueError, KeyError, TypeError, IndexError),
    *(AttributeError, EOFError, RuntimeError, NotImplementedError, OSError, OverflowError),
)


class _FirstElement(Exception):  # noqa: N818
    """The prolog of a document has ended."""


def is_workbook(source: PlanContent) -> bool:
    """Return True for a zip file, and for the older format of Excel."""
    return source.data.startswith((ZIP, OLE))


def sheets(source: PlanContent) -> tuple[list[Any], list[str]]:
    """Return the visible sheets, and a note for each hidden one.

    Raises Malformed for what is no workbook, Unavailable without openpyxl.
    """
    if source.data.startswith(OLE):
        raise Malformed(f"{source.file}: an .xls or encrypted workbook: save it as .xlsx or CSV")
    try:
        _check(source)
        from openpyxl import load_workbook

        data = io.BytesIO(source.data)
        book = load_workbook(data, read_only=True, data_only=True, keep_links=False, rich_text=True)
    except ImportError:
        what = "a plan in an XLSX workbook"
        raise not_installed(what, "openpyxl", "plan", ", or save it as CSV") from None
    except _ERRORS as error:
        raise Malformed(f"{source.file}: no XLSX workbook: {_reason(error)}") from error
    shown = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
    hidden = [sheet for sheet in book.worksheets if sheet.sheet_state != "visible"]
    notes = [f"sheet {quoted(sheet.title)} is hidden: skipped" for sheet in hidden]
    return shown, notes


def _check(source: PlanContent) -> None:
    """Raise Malformed for a member that expands too far, and for a document type declaration."""
    with zipfile.ZipFile(io.BytesIO(source.data)) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > MAX_EXPANDED or len(members) > MAX_MEMBERS:
            raise Malformed(
                f"{source.file}: expands to {size >> 20} MiB in {len(members)} parts; "
                f"the limits are {MAX_EXPANDED >> 20} MiB and {MAX_MEMBERS} parts"
            )
        if any(member.filename == STYLES and member.file_size > MAX_STYLES for member in members):
            raise Malformed(
                f"{source.file}: styles of more than {MAX_STYLES >> 20} MiB: save as CSV"
            )
        if CONTENT_TYPES not in archive.namelist():
            raise Malformed(f"{source.file}: a zip file, but no XLSX workbook")
        for member in members:
            _check_prolog(source.file, member.filename, archive)


def _check_prolog(file: str, name: str, archive: zipfile.ZipFile) -> None:
    """Raise Malformed for a part with a document type; a part of any name may be a sheet."""

    def refuse(*_: object) -> None:
        raise Malformed(f"{file}: {quoted(name)} declares a document type: refused")

    def stop(*_: object) -> None:
        raise _FirstElement

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = stop
    with archive.open(name) as part:
        try:
            if head := part.read(_PROLOG):
                parser.Parse(head, len(head) < _PROLOG)
        except _FirstElement:
            return
        except expat.ExpatError:  # a picture, or what openpyxl refuses itself
            return
    if head:
        raise Malformed(f"{file}: {quoted(name)} has no element in its first 64 KiB")


def rows(place: FilePlace, sheet: Any, remarks: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a sheet, and write the notes of what a reader does not see to `remarks`."""
    fonts = sheet.parent._fonts
    struck_styles = {
        number
        for number, style in enumerate(sheet.parent._cell_styles)
        if fonts[style.fontId].strike
    }
    row = 0
    crossed: set[int] = set()  # with text that is struck through
    hidden, struck, in_part, unsaved = list[int](), list[int](), list[int](), list[int]()
    try:
        with sheet._get_source() as part:
            parser = _parser(part, sheet, struck_styles, crossed)
            for number, cells in parser.parse():
                if not cells:
                    continue
                if number > MAX_ROW:
                    raise ValueError(f"row {number}, and a sheet has {MAX_ROW}")
                if number <= row:
                    raise ValueError(f"row {number} below row {row}")
                texts = _texts(cells)
                row = number
                if row in crossed:
                    (in_part if any(texts) else struck).append(row)
                is_hidden = parser.row_dimensions.pop(str(row), {}).get("hidden") in _TRUE
                hidden += [row] if is_hidden and any(texts) else []
                unsaved += [row] if UNSAVED in texts else []
                yield row, texts
    except _ERRORS as error:
        where = place.at(row + 1)
        raise Malformed(f"{where}: no XLSX workbook: {_reason(error)}") from error
    remarks[:] = [
        f"{len(numbers)} row{'s' * (len(numbers) > 1)} {what} (the first: row {numbers[0]})"
        for numbers, what in (
            (hidden, "hidden, and read"),
            (struck, "struck through, and left out"),
            (in_part, "struck through in part, which is not read"),
            (unsaved, "with a formula without a saved value, which is read as empty"),
        )
        if numbers
    ]


def _parser(part: Any, sheet: Any, struck: Collection[int], crossed: set[int]) -> Any:
    """Return the parser of a sheet; `struck` are its styles of text that is struck through.

    It adds the rows with such text to `crossed`.
    """
    from openpyxl.worksheet._reader import FORMULA_TAG, VALUE_TAG, WorkSheetParser

    book = sheet.parent
    parser = WorkSheetParser(
        part,
        sheet._shared_strings,
        data_only=True,
        epoch=book.epoch,
        date_formats=book._date_formats,
        timedelta_formats=book._timedelta_formats,
        rich_text=True,
    )
    parse_cell = parser.parse_cell

    def parsed(element: Any) -> Any:
        """Tell a formula that was never computed from an empty cell, and leave out struck text."""
        cell = parse_cell(element)
        is_formula = element.find(FORMULA_TAG) is not None
        if is_formula and not element.findtext(VALUE_TAG) and element.get("t") != "str":
            cell["value"] = UNSAVED  # the saved value of an empty text has its type
        value, is_struck = cell["value"], int(cell["style_id"]) in struck
        if isinstance(value, list):  # runs of text; some have a font of their own
            kept = [
                run for run in value if not (run.font.strike if hasattr(run, "font") else is_struck)
            ]
            cell["value"] = "".join(map(str, kept))
            is_struck = len(kept) < len(value)
        elif is_struck:
            cell["value"] = None
        if is_struck and value is not None:
            crossed.add(cell["row"])
        return cell

    parser.parse_cell = parsed  # type: ignore[method-assign]
    return parser


def _texts(cells: list[dict[str, Any]]) -> list[str]:
    """Return the texts of a row by column, whatever the order of its cells.

    A cell is as it is shown: `5` of the number 5.0, `2026-01-02` of a date, `TRUE`.
    """
    texts: dict[int, str] = {}
    for cell in cells:
        column, value = cell["column"], cell["value"]
        if column in texts:
            raise ValueError(f"two cells in column {column} of row {cell['row']}")
        if isinstance(value, bool):
            value = str(value).upper()
        elif isinstance(value, datetime) and value.time() == time():
            value = value.date()
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        text = "" if value is None else str(value)
        if text and column > MAX_COLUMNS:
            raise ValueError(f"a text in column {column}; {MAX_COLUMNS} columns are read")
        if column <= MAX_COLUMNS:
            texts[column] = text
    return [texts.get(column, "") for column in range(1, max(texts, default=0) + 1)]


def _reason(error: Exception) -> str:
    return quoted(error)[1:-1] or type(error).__name__
