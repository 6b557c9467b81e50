"""The content of one plan file: bytes, bounded in size, and the text and JSON in them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from agent.cabling.plans.model import NO_FIELDS, FilePlace
from agent.errors import Malformed

Columns = Mapping[str, str]  # columns of our own CSV, each with its title in a table

HEAD = 64 << 10  # characters from which a kind is recognized
MAX_LINE = 2_000  # characters, of the formats that are read by lines
MAX_SIZE = 64 << 20  # bytes; 100,000 cables of a spreadsheet are 3 to 20 MB as CSV
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks: the "Unicode text" of spreadsheet programs
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # alone or in a pair
_JSON = re.compile(r"\s{0,4096}+(?:\{(?! (?:CA|SW)[ -])|\[\s*(?:[\[\]{\"\d-]|true|false|null|$))")
_GZIP = b"\x1f\x8b"


class PlanContent:
    """One plan file. `file` is its name in messages, `columns` the value of --columns."""

    def __init__(self, file: str, data: bytes, columns: Columns = NO_FIELDS) -> None:
        self.file = file
        self.data = data
        self.columns = columns
        self.notes: tuple[str, ...] = ()
        if not data.strip():
            raise Malformed(f"{file}: empty file")
        if len(data) > MAX_SIZE:
            advice = "export the cables of fewer nodes, or CSV"
            raise Malformed(f"{file}: more than {MAX_SIZE >> 20} MiB; {advice}")
        if data.startswith(_GZIP):
            raise Malformed(f"{file}: compressed: unpack it first")

    @property
    def place(self) -> FilePlace:
        """The whole file."""
        return FilePlace(self.file)

    @cached_property
    def text(self) -> str:
        """The text: UTF-8 or UTF-16, else Latin-1 with a note.

        Without a byte order mark, every other byte of Latin text in UTF-16 is zero, and no byte of
        a text in another encoding.
        """
        even, odd = (self.data[start:4096:2].count(0) for start in (0, 1))
        encoding = "utf-16" if self.data.startswith(_UTF16) else "utf-8"
        least = max(4 * min(even, odd) + 1, len(self.data[1:4096:2]) // 4)
        if encoding == "utf-8" and max(even, odd) >= least:
            encoding = "utf-16-le" if odd > even else "utf-16-be"
        try:
            text = self.data.decode(encoding)
        except UnicodeDecodeError:
            self.notes = ("not UTF-8: read as Latin-1",)
            text = self.data.decode("latin-1")
        text = text.removeprefix("\ufeff")
        if "\0" in text:
            raise Malformed(f"{self.file}: neither text nor an XLSX workbook")
        if not text or text.isspace():
            raise Malformed(f"{self.file}: empty file")
        return text

    @property
    def head(self) -> str:
        """The characters from which a kind is recognized."""
        return self.text[:HEAD]

    @cached_property
    def looks_like_json(self) -> bool:
        """True for the start of JSON, but not `[root@node ~]#` and not `{ CA` of a .lst file."""
        return _JSON.match(self.text) is not None

    @cached_property
    def json(self) -> Any:
        """The JSON document; raises Malformed if the text is none."""
        try:
            document = json.loads(self.text)
            if _SURROGATE.search(self.text):
                json.dumps(document, ensure_ascii=False).encode()  # raises for half of a character
        except json.JSONDecodeError as error:
            place = self.place.at(error.lineno, str(error.colno))
            raise Malformed(f"{place}: not JSON: {error.msg}") from error
        except (RecursionError, ValueError) as error:  # nesting; 4,300 digits; half of a character
            raise Malformed(f"{self.file}: not JSON: {error}") from error
        return document

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines with their numbers; raises Malformed for one that is too long."""
        text = self.text.replace("\r\n", "\n").replace("\r", "\n")
        for row, line in enumerate(text.split("\n"), 1):  # not at U+2028, as splitlines does
            if len(line) > MAX_LINE:
                raise Malformed(f"{self.place.at(row)}: more than {MAX_LINE} characters")
            yield row, line

    def rows(self, separator: str) -> Iterator[tuple[int, int, list[str]]]:
        """Yield the rows of CSV: the number, the line on which it ends, and the cells.

        Raises Malformed with the first line of a broken row.
        """
        reader = csv.reader(io.StringIO(self.text, newline=""), delimiter=separator, strict=True)
        first = 1  # line of the row that is read next
        try:
            for number, cells in enumerate(reader, 1):
                yield number, reader.line_num, cells
                first = reader.line_num + 1
        except csv.Error as error:
            is_open = "unexpected end of data" in str(error)
            fault = "a quotation that never ends" if is_open else error
            raise Malformed(f"{self.place.at(first)}: no CSV: {fault}") from None

    def forget(self) -> None:
        """Drop the text and the document, of which the caller has what it needs."""
        self.__dict__.pop("text", None)
        self.__dict__.pop("json", None)


def load(path: str, columns: Columns = NO_FIELDS) -> PlanContent:
    """Read a file. Raises Malformed if it cannot be read or is too large."""
    try:
        with open(path, "rb") as file:
            return PlanContent(path, file.read(MAX_SIZE + 1), columns)
    except OSError as error:
        raise Malformed(f"{path}: {error.strerror or error}") from error
