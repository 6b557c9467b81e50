"""The content of one plan file: bytes, bounded in size, and the text and JSON in them."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed
from agent.plans.model import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = 64 << 10  # characters from which a kind is recognized
MAX_LINE = 2_000  # characters, of the formats that are read by lines
MAX_SIZE = 64 << 20  # bytes; 100,000 cables of a spreadsheet are 3 to 20 MB as CSV
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks: the "Unicode text" of spreadsheet programs
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # alone or in a pair
_GZIP = b"\x1f\x8b"


class Source:
    """One plan file. `file` is its name in messages."""

    def __init__(self, file: str, data: bytes) -> None:
        self.file = file
        self.data = data
        self.notes: tuple[str, ...] = ()
        if not data.strip():
            raise Malformed(f"{file}: empty file")
        if len(data) > MAX_SIZE:
            raise Malformed(f"{file}: {_too_large(len(data))}")
        if data.startswith(_GZIP):
            raise Malformed(f"{file}: compressed: unpack it first")

    @property
    def place(self) -> Place:
        """The whole file."""
        return Place(self.file)

    @cached_property
    def text(self) -> str:
        """The text: UTF-8, UTF-16 with a byte order mark, else Latin-1 with a note."""
        text = self._decoded().removeprefix("\ufeff")
        if "\0" in text:
            raise Malformed(f"{self.file}: neither text nor an XLSX workbook")
        if not text or text.isspace():
            raise Malformed(f"{self.file}: empty file")
        return text

    @property
    def head(self) -> str:
        """The characters from which a kind is recognized."""
        return self.text[:HEAD]

    def _decoded(self) -> str:
        encoding = "utf-16" if self.data.startswith(_UTF16) else "utf-8"
        try:
            return self.data.decode(encoding)
        except UnicodeDecodeError:
            self.notes = ("not UTF-8: read as Latin-1",)
            return self.data.decode("latin-1")

    @cached_property
    def looks_like_json(self) -> bool:
        """True if the first character opens a JSON object or array."""
        return self.text[:4096].lstrip()[:1] in {"{", "["}

    @cached_property
    def json(self) -> Any:
        """The JSON document; raises Malformed if the text is none."""
        try:
            return _encodable(json.loads(self.text), self.text)
        except json.JSONDecodeError as error:
            place = Place(self.file, None, error.lineno, str(error.colno))
            raise Malformed(f"{place}: not JSON: {error.msg}") from error
        except (RecursionError, ValueError) as error:  # nesting; 4,300 digits; half of a character
            raise Malformed(f"{self.file}: not JSON: {error}") from error

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines with their numbers; raises Malformed for one that is too long."""
        text = self.text.replace("\r\n", "\n").replace("\r", "\n")
        for row, line in enumerate(text.split("\n"), 1):  # not at U+2028, as splitlines does
            if len(line) > MAX_LINE:
                raise Malformed(f"{self.place._replace(row=row)}: more than {MAX_LINE} characters")
            yield row, line

    def forget(self) -> None:
        """Drop the text and the document, of which the caller has what it needs."""
        self.__dict__.pop("text", None)
        self.__dict__.pop("json", None)


def _encodable(document: Any, text: str) -> Any:
    """Return the document; raises UnicodeEncodeError for a text with half of a character."""
    if _SURROGATE.search(text):
        json.dumps(document, ensure_ascii=False).encode()
    return document


def load(path: str) -> Source:
    """Read a file. Raises Malformed if it cannot be read or is too large."""
    try:
        with open(path, "rb") as file:
            return Source(path, file.read(MAX_SIZE + 1))
    except OSError as error:
        raise Malformed(f"{path}: {error.strerror or error}") from error


def _too_large(size: int) -> str:
    more = "more than " if size > MAX_SIZE else ""
    return f"{more}{MAX_SIZE >> 20} MiB; export the cables of fewer nodes, or CSV"
