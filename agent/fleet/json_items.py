"""JSON objects of a long document, one by one, with their line and column.

    {"apiVersion": "v1", "items": [{...}, {...}], "kind": "List"}     the items, and the rest
    [{...}, {...}]                                                    the items
    {...} {...}                                                       one after the other

The text is read in pieces, of which only the piece that is being decoded is kept: a list of 100,000
Nodes has more than 600 MB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TextIO

from agent.errors import Malformed

PIECE = 1 << 16  # characters
MAX_VALUE = 16 << 20  # characters of one value; etcd stores no object of more than 1.5 MB
_SPACE = re.compile(r"[ \t\n\r]*")
_REST = re.compile(r"[-+.\\\w]*\s*")  # of a number, a word or an escape
_ENDS = "the text ends here, in the middle of a value"
_decode = json.JSONDecoder().raw_decode


class Item(NamedTuple):
    """A JSON value and its place."""

    value: Any
    line: int
    column: int
    is_list: bool = False  # what a list has beside its items


class Items:
    """The items of a text. Iterating raises Malformed with line and column, UnicodeDecodeError."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text, self._at, self._is_end = "", 0, False
        self._mark, self._line, self._column = 0, 1, 1  # a place in `_text` up to `_at`
        self._longest = 0  # characters of a value

    def __iter__(self) -> Iterator[Item]:
        """Yield the items of the documents in the text; of a list also the rest, last."""
        while start := self._next():
            if start == "[":
                yield from self._array()
                continue
            if start != "{":
                raise self._fault("neither a JSON object nor a list begins here")
            line, column = self._place(self._at)
            rest, is_list = dict[str, Any](), False
            for _ in self._parts("{", "}"):
                if self._next() != '"':
                    raise self._fault("a name in double quotes is missing here")
                key = str(self._value().value)
                self._take(":")
                if key == "items" and self._next() == "[":
                    is_list = True
                    yield from self._array()
                else:
                    rest[key] = self._value().value
            yield Item(rest, line, column, is_list)

    def _array(self) -> Iterator[Item]:
        for _ in self._parts("[", "]"):
            yield self._value()

    def _parts(self, first: str, last: str) -> Iterator[None]:
        """Pass over the brackets and commas around parts, each of which the caller decodes."""
        self._take(first)
        if self._next() != last:
            yield
            while self._next() != last:
                self._take(",")
                yield
        self._take(last)

    def _take(self, character: str) -> None:
        """Pass over this character; raises Malformed for another one."""
        if self._next() != character:
            is_cut = self._is_end and self._may_go_on(self._at)
            raise self._fault(_ENDS if is_cut else f"'{character}' is missing here")
        self._at += 1

    def _next(self) -> str:
        """Return the next character that is no space; "" at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def _read(self) -> bool:
        """Read another piece; False at the end. The longer the rest, the longer the piece."""
        if self._is_end:
            return False
        self._place(self._at)
        rest = self._text[self._at :]
        piece = self._file.read(max(PIECE, len(rest)))
        self._text, self._at, self._mark, self._is_end = rest + piece, 0, 0, not piece
        return bool(piece)

    def _value(self) -> Item:
        """Decode the value that begins here, and read on until all of it is there."""
        self._next()
        if len(self._text) - self._at < self._longest:
            self._read()  # a value that is cut here would be decoded twice
        line, column = self._place(self._at)
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = self._may_go_on(error.pos) or error.msg.startswith("Unterminated")
                if self._is_end or not is_cut:
                    reason = _ENDS if is_cut else error.msg[:1].lower() + error.msg[1:]
                    raise self._fault(reason, error.pos) from None
            except (ValueError, RecursionError) as error:  # a number of thousands of digits
                raise self._fault(f"not readable from here on: {error}") from None
            else:
                if self._is_end or not self._may_go_on(end):
                    self._longest = max(self._longest, end - self._at)
                    self._at = end
                    return Item(value, line, column)
            if len(self._text) - self._at > MAX_VALUE:
                raise self._fault(f"a value of more than {MAX_VALUE >> 20} MiB begins here")
            self._read()

    def _may_go_on(self, end: int) -> bool:
        """Return True if the value may be a number of which the next piece has the rest."""
        return _REST.fullmatch(self._text, end) is not None

    def _place(self, at: int) -> tuple[int, int]:
        """Return line and column; `at` is not before that of the last call in this piece."""
        lines = self._text.count("\n", self._mark, at)
        if lines:
            self._line += lines
            self._column = at - self._text.rindex("\n", self._mark, at)
        else:
            self._column += at - self._mark
        self._mark = at
        return self._line, self._column

    def _fault(self, text: str, at: int | None = None) -> Malformed:
        """Return the error for the place `at`, or for the next character."""
        mark = self._mark, self._line, self._column
        line, column = self._place(self._at if at is None else at)
        self._mark, self._line, self._column = mark
        return Malformed(f"line {line}, column {column}: {text}")
