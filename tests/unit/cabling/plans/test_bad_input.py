"""What is no plan, or a broken one, is one line that names file, sheet, row and column."""

from __future__ import annotations

import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl import Workbook, load_workbook
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.styles import Font

from agent.cabling.plans import xlsx
from agent.cabling.plans.model import End, FilePlace, PlanCable
from agent.cabling.plans.reader import KINDS, read_plan
from agent.cabling.plans.source import PlanContent
from agent.errors import Malformed, Unavailable
from tests.support import plans
from tests.support.plans import read_one, refusal

ROW = plans.cable("gpu-017 mlx5_0", "leaf01 1")
HEADER = "A-Node Name,A-Port,Z-Node Name,Z-Port"
AT = [f", row 2, column {title}" for title in HEADER.split(",")]
DAY = datetime(2026, 1, 2)  # noqa: DTZ001 - a sheet's dates have no zone


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ": empty file"),
        (" \r\n\n", ": empty file"),
        ("\x1f\x8b\x08", ": compressed: unpack it first"),
        ("a\0b", ": neither text nor an XLSX workbook"),
        ("hello", f": no header such as {HEADER.replace(',', ', ')} in the first 20 rows"),
        (f"{HEADER}\n", ": no cables: no row below the header"),
        (
            f"{HEADER}\ngpu,1,,\n",
            ": no cables: 1 row skipped, without a far end (the first: p, row 2)",
        ),
        (
            "Label,Termination A,Termination B\nx,eth0,swp1\n",
            ", row 1: no column for the node of the first end",
        ),
        (f"{HEADER}\n\ngpu,1,leaf,\n", ", row 3, column Z-Port: empty (a merged cell has its val"),
        (f'{HEADER}\n"gpu\n17",1,leaf,1\n', f"{AT[0]}: a line break in 'gpu\\n17'"),
        (f"{'x' * 70_000}\n{HEADER}\ngpu,1,leaf,1\n", ": no header such as"),
        ("\xef\xbb\xbf", ": empty file"),
        ("\xff\xfe \0\n\0", ": empty file"),
        (
            f"{HEADER},Speed\ngpu,1,leaf,1,400G\nleaf,1,gpu,1,200G\n",
            ", row 3: the cable of row 2 again, with another rate or mark",
        ),
        (
            f"{HEADER},Mark\ngpu,1,leaf,1,perhaps\n",
            ", row 2: mark 'perhaps' is none of ignore, link-state-only",
        ),
        (
            f"{HEADER},A-Type,Z-Type\ngpu,1,gpu2,1,Host,host\n",
            ", row 2, column Z-Type: both ends are hosts",
        ),
        (
            f"{HEADER}\ngpu,1,leaf,1\nA-Node Name,A-Port,Z-Port,Z-Node Name\n",
            ", row 3: a second header that differs from the first",
        ),
        (
            f"{HEADER},A-Node\ngpu,1,leaf,1,x\n",
            ", row 1: columns 'A-Node Name' and 'A-Node' are the same",
        ),
        ("Rack,U,Name,HCA/Port,Rack,Name,Name,Port\n", ", row 1: 3 columns 'Name', not one an end"),
        ("Name,Name,Port,Port\n", ", row 1: the columns of the two ends are not side by side"),
        ("{", ", row 1, column 2: not JSON: Expecting property name"),
        ("{}", ": JSON: no cables of NetBox"),
        ("[" * 100_000, ": not JSON: "),
        ('{"links": ["\\ud83d"]}', ": not JSON: 'utf-8' codec can't encode character"),
        ("graph G {\n a:b -- c:d", ", row 2: the file ends within the graph: truncated"),
        ('graph G {\n a:b -- c:"d', ", row 2: the file ends within a text or comment: truncated"),
        ("graph G {\n a:b -- c:d [x=", ", row 2: the file ends within the graph: truncated"),
        (
            "graph G {\n a:b -- c\n}",
            ": no cables: 1 row skipped, an end without a port (the first: ",
        ),
        ("graph G {\n a:b -- c:d -- e:f\n}", ", row 2: a chain of edges"),
        ("digraph G {\n a:b -> c:d\n}", ", row 1: not an undirected graph"),
        ("graph G {\n a:<b> -- c:d\n}", ", row 2: not of the subset: '<b> -- c:d"),
        ("graph G {\n}\ngraph H {\n}", ", row 3: more than one graph"),
        ("graph G {\n}", ": no cables"),
        (f"{',' * 2000}\n", ", row 1: more than 1024 columns"),
        (f"{HEADER}{',' * 2000}\n", ", row 1: more than 1024 columns"),
        ("graph G {" + "{" * 40, ", row 1: more than 32 subgraphs in each other"),
        *(
            (f"{HEADER}\n{row}\n", message)
            for row, message in (
                ("gpu,1,leaf,#REF!", f"{AT[3]}: #REF!"),
                ("gpu,1,leaf,2-Jan", f"{AT[3]}: the date '2-Jan': a port such as 1/2 needs a c"),
                ("gpu,1,leaf,1,2", ", row 2, column E: more cells than the header: a separator"),
                ('gpu,"1,leaf,1', ", row 2: no CSV: a quotation that never ends"),
                ("gpu,HCA\xa01,leaf,1", f"{AT[1]}: a character that does not print in 'HCA\\xa01'"),
                ("gpu\x1b[2J,1,leaf,1", f"{AT[0]}: a character that does not print in 'gpu\\x1b"),
                (f"gpu,1,{'l' * 256},1", f"{AT[2]}: more than 255 characters"),
                ("leaf,1,leaf,1", ", row 2: both ends are 'leaf 1'"),
            )
        ),
    ],
)
def test_messages(content: str, message: str) -> None:
    """Each defect is named with its place."""
    assert refusal(content.encode("latin-1")).startswith(f"p{message}")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"links": []}, "p: JSON of NVIDIA AIR or spcx-gen: the kind links was removed: "),
        ({"title": "t", "content": {"links": []}}, "the kind links was removed: use dot, or own"),
        (
            {"count": 9, "next": None, "results": [{"a_terminations": []}]},
            "p: one page of several (1 of 9 cables): ask for all with ?limit=0",
        ),
        ({"count": 0, "results": []}, "p: no cables"),
        ({"next": "http://", "count": 812, "results": [{"a_terminations": []}]}, "(1 of 812 "),
        ([{"a_terminations": {}}], "row 1, column a_terminations: no list of terminations"),
        ([{"a_terminations": [], "b_terminations": []}], "no cables: 1 row skipped, with"),
        ([{"a_terminations": [], "b_terminations": []}, 5], "row 2: no cable: int"),
    ],
)  # fmt: skip
def test_json(document: Any, message: str) -> None:
    """The place in JSON is the number of the cable."""
    assert message in refusal(json.dumps(document))


def test_a_pair_of_surrogates_is_one_character() -> None:
    """JSON escapes a character beyond U+FFFF as two."""
    document = plans.netbox(
        [PlanCable(End("\U0001f600", "1"), End("leaf", "1"), FilePlace("plan"))]
    )
    assert r"\ud83d\ude00" in document
    assert read_one(document).cables[0].a.node == "\U0001f600"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nosuch", "'nosuch' is none of the kinds own, labels, "),
        ("topo", "the kind topo was removed: use ibnetdisc"),
    ],
)
def test_a_format_that_is_none(kind: str, message: str) -> None:
    """`--plan-format` takes the names of the kinds; one that was removed names its successor."""
    assert refusal(HEADER, kind).startswith(f"p: {message}")


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_any_content_is_read_or_malformed(content: str | bytes) -> None:
    """No kind raises anything but Malformed for what is something else."""
    data = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    for kind in KINDS:
        assert outcome(data, kind).isprintable(), kind


def outcome(data: bytes, kind: str | None = None) -> str:
    """Return the message by which a file is refused, or its name."""
    try:
        plans.read(data, kind)
    except Malformed as error:
        return str(error)
    return "p"


TABLE = plans.rows([ROW], "sided")
BOOK = plans.workbook({"Links": TABLE, "Old": TABLE}, hidden=["Old"])


@settings(max_examples=60)
@given(st.integers(0, len(BOOK) - 1), st.integers(1, 255), st.booleans())
def test_a_damaged_workbook_is_malformed(at: int, mask: int, truncate: bool) -> None:
    """A workbook with a wrong byte, or without its end, is read or Malformed."""
    data = BOOK[:at] if truncate else BOOK[:at] + bytes([BOOK[at] ^ mask]) + BOOK[at + 1 :]
    assert outcome(data).isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("name", zipfile.ZipFile(io.BytesIO(BOOK)).namelist())
@pytest.mark.parametrize(
    "content", [b"", b"<", b"<x/>", b"<!DOCTYPE x [<!ENTITY y 'z'>]><x>&y;</x>"]
)
def test_a_broken_part_is_malformed(name: str, content: bytes) -> None:
    """A workbook of which one part is something else is read or Malformed."""
    message = outcome(rezipped(BOOK, {name: content}))
    assert b"DOCTYPE" not in content or "declares a document type" in message


def rezipped(book: bytes, parts: dict[str, bytes]) -> bytes:
    """Return the workbook with other, or with more, parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book)) as old, zipfile.ZipFile(out, "w") as new:
        for member, content in ({name: old.read(name) for name in old.namelist()} | parts).items():
            new.writestr(member, content)
    return out.getvalue()


BOMB = '<?xml version="1.0" encoding="{0}"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
STYLES = b"<styleSheet><cellXfs>" + b"<xf/>" * (2 << 20)


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        *(
            ("xl/workbook.xml", BOMB.format(code).encode(code), "'xl/workbook.xml' declares a doc")
            for code in ("utf-8", "utf-16")
        ),
        # A comment before the first element cannot hide a document type.
        ("xl/a.bin", b"<!--" + b" " * 70_000 + b"--><!DOCTYPE a><a/>", "'xl/a.bin' has no element"),
        # Styles are of no use here, and each would be an object.
        ("xl/styles.xml", STYLES, "styles of more than 8 MiB: save as CSV"),
    ],
)
def test_a_part_that_is_refused(part: str, content: bytes, message: str) -> None:
    """Before openpyxl reads it: a document type in any encoding, and what expands too far."""
    assert refusal(rezipped(BOOK, {part: content})).startswith(f"p: {message}")


def test_pictures_are_no_xml() -> None:
    """A part that is no XML, or empty, is left to openpyxl."""
    book = rezipped(BOOK, {"xl/media/a.png": b"\x89PNG\r\n", "xl/media/b.png": b""})
    assert plans.read(book)


def test_a_zip_bomb_is_refused() -> None:
    """A workbook that expands beyond the limit is refused before it is read."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as book:
        for part in ("xl/workbook.xml", "xl/worksheets/sheet1.xml"):
            book.writestr(part, bytes(160 << 10))
    small, big = ((160 << shift).to_bytes(4, "little") for shift in (10, 20))  # in the headers
    message = refusal(out.getvalue().replace(small, big))
    assert message.startswith("p: expands to 320 MiB in 2 parts; the limits are")


def test_a_size_in_the_header_bounds_the_expansion() -> None:
    """A member that claims to be smaller than it is gives no more than it claims."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/workbook.xml", b"<a>" + b" " * (1 << 20))
    data = out.getvalue().replace(((1 << 20) + 3).to_bytes(4, "little"), (99).to_bytes(4, "little"))
    assert refusal(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (xlsx.OLE + b"...", "p: an .xls or encrypted workbook: save it as .xlsx or CSV"),
        (xlsx.ZIP + b"...", "p: no XLSX workbook: File is not a zip file"),
        (BOOK.replace(b"_Types].xml", b"_Types].bin"), "p: a zip file, but no XLSX workbook"),
    ],
)  # fmt: skip
def test_what_is_no_xlsx(data: bytes, message: str) -> None:
    """Other formats of spreadsheet programs are named."""
    assert refusal(data).startswith(message)


def edited(change: Any) -> bytes:
    book: Workbook = load_workbook(io.BytesIO(plans.workbook({"Links": TABLE})))
    change(book.worksheets[0])
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def cells(**values: object) -> Callable[[Any], None]:
    """Return the change that sets these cells of a sheet."""

    def change(sheet: Any) -> None:
        for place, value in values.items():
            sheet[place] = value

    return change


def merged(sheet: Any) -> None:
    sheet.append(["gpu-018", "mlx5_1", "", "", "leaf01", "2"])
    sheet.merge_cells("A2:A3")


def half_struck(sheet: Any) -> None:
    strike(sheet, "F2:F2")


@pytest.mark.parametrize(
    "text",
    ["2-Jan", "02-Jan-26", "2-Jan-2026", "02. Jan", "Jan-02", "2.1.2026", "1/2/2026", "01:02:00"],
)
def test_dates(text: str) -> None:
    """A split port that a spreadsheet program has taken for a date or a time is no port."""
    message = refusal(f"{HEADER}\ngpu,1,leaf,{text}\n")
    assert message.startswith("p, row 2, column Z-Port: the date ")


@pytest.mark.parametrize("text", ["1/2", "1/2/26", "1:2", "Eth1/2", "1-2", "2.1", "Jan", "1a:00.0"])
def test_ports_that_are_no_dates(text: str) -> None:
    """The numbers of chassis, slots and cages."""
    plan = read_one(f"{HEADER}\ngpu,1,leaf,{text}\n")
    assert plan.cables[0].b.interface == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cells(F2=DAY), "p, sheet Links, row 2, column Z-Port: the date '2026-01-02'"),
        (
            cells(F2="=1+1"),
            "p, sheet Links, row 2, column Z-Port: a formula without a saved value",
        ),
        (merged, "p, sheet Links, row 3, column A-Node Name: empty (a merged cell has"),
        (half_struck, "p, sheet Links, row 2, column Z-Port: empty (a merged cell has its"),
    ],
)
def test_cells_that_are_no_text(change: Any, message: str) -> None:
    """A date, a formula that was never computed and the rest of a merged cell are named."""
    assert refusal(edited(change)).startswith(message)


def test_numbers_and_surplus_cells() -> None:
    """Numbers are read as they are shown; a cell beside the table is carried through."""
    numbers = edited(cells(C2=12, D2=3.0, F2=1, J2="note"))
    (one,) = read_one(numbers).cables
    assert (one.a.rack, one.a.unit, one.b.interface) == ("12", "3", "1")
    assert dict(one.fields) == {"column J": "note"}


def test_a_formula_beside_the_names() -> None:
    """Without its value rack, unit and rate are unknown, and a note says so."""
    beside = edited(cells(C2="=A1", G2="=A1", J1="Speed", J2="=400"))
    plan = read_one(beside)
    (one,) = plan.cables
    assert (one.a.rack, one.b.rack, one.rate_gbps, dict(one.fields)) == (None, None, None, {})
    assert plan.notes == (
        "1 row with a formula without a saved value, which is read as empty (the first: row 2)",
    )


def test_hidden_and_other_sheets_are_notes() -> None:
    """A hidden sheet and one without a header are skipped with a note."""
    book = plans.workbook({"Cover": [["Hall 3"]], "Links": TABLE, "Old": TABLE}, hidden=["Old"])
    plan = read_one(book)
    assert plan.sheet == "Links"
    assert plan.notes == (
        "sheet 'Old' is hidden: skipped",
        "sheet 'Cover' has no header of cables: skipped",
    )
    book = plans.workbook({"Cover": [["Hall 3"]], "Links": TABLE}, hidden=["Links"])
    assert refusal(book).endswith("rows; sheet 'Links' is hidden: skipped")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"]
)
def test_encodings_and_line_ends(newline: str, encoding: str) -> None:
    """A byte order mark and the line ends of any system are no part of the data."""
    one = plans.cable("höst 1", "leaf 2")
    text = plans.csv_text(plans.rows([one], "sided"), ";", newline)
    plan = read_one(text.encode(encoding))
    assert plans.of([plan]) == plans.meaning([one])
    assert plan.notes == (("not UTF-8: read as Latin-1",) if encoding == "latin-1" else ())


def test_repeated_and_contradicting_rows() -> None:
    """A repeated row is dropped, a contradiction is kept; both are notes with both rows."""
    rows = ["gpu,1,leaf,1", "leaf,1,gpu,1", "gpu,2,leaf,1", "gpu,2,leaf,1"]
    plan = read_one("\n".join([HEADER, *rows]))
    assert [one.place.row for one in plan.cables] == [2, 4]
    assert plan.notes == (
        "p, row 3: the cable of row 2 again",
        "p, row 4: leaf 1 has another far end than in row 2",
        "p, row 5: the cable of row 4 again",
    )


def test_notes_are_bounded() -> None:
    """A file of nothing but repetitions has a few notes and their number."""
    plan = read_one("\n".join([HEADER, *["gpu,1,leaf,1"] * 100]))
    assert len(plan.notes) == 21
    assert plan.notes[-1] == "79 more notes"


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(Malformed, match=r"plan.csv: more than 64 MiB; export the cables of fewer"):
        read_plan(str(path))


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match=r"nosuch: No such file or directory"):
        read_plan(str(tmp_path / "nosuch"))
    with pytest.raises(Malformed, match=r": Is a directory"):
        read_plan(str(tmp_path))
    with pytest.raises(Malformed, match=r"^/dev/null: empty file"):
        read_plan("/dev/null")


@pytest.mark.parametrize("mark", ["\u2028", "\x0b", "\x0c", "\x1c", "\x85"])
def test_lines_end_at_line_ends(mark: str) -> None:
    """A NodeDescription may have characters in it that other formats end a line with."""
    text = plans.ibnetdiscover([ROW]).replace("gpu-017 mlx5_0", f"gpu{mark}017 mlx5_0")
    plan = read_one(text)
    assert plan.kind == "ibnetdiscover"
    assert len(plan.cables) == 1


def test_a_pipe_is_read() -> None:
    """`--plan <(curl ...)` of a shell is a pipe."""
    reading, writing = os.pipe()
    os.write(writing, f"{HEADER}\ngpu,1,leaf,1\n".encode())
    os.close(writing)
    (plan,) = read_plan(f"/dev/fd/{reading}")
    os.close(reading)
    assert len(plan.cables) == 1


@pytest.mark.parametrize("kind", ["ibnetdiscover", "iblinkinfo"])
def test_a_long_line_is_refused(kind: str) -> None:
    """A line that no program writes is refused before a pattern is tried on it."""
    assert refusal("# x\n" + "a " * 2000, kind) == "p, row 2: more than 2000 characters"


def test_white_space_costs_no_time() -> None:
    """No pattern backtracks over the empty lines before a text."""
    start = time.process_time()
    assert refusal("\n \t" * 20_000 + "x").startswith("p: no header")
    assert time.process_time() - start < 1


def test_a_sheet_that_breaks_off() -> None:
    """The row at which the XML of a sheet ends is named."""
    whole = zipfile.ZipFile(io.BytesIO(BOOK)).read(SHEET)
    whole = whole.replace(b"<sheetViews>", b'<dimension ref="A1:J2"/><sheetViews>')
    message = refusal(rezipped(BOOK, {SHEET: whole[: len(whole) * 3 // 4]}))
    assert message.startswith("p, sheet Links, row 2: no XLSX workbook: ")


SHEET = "xl/worksheets/sheet1.xml"
STYLED = """
<row r="2"><c r="A2" t="inlineStr"><is><r><t>gpu</t></r><r><rPr><b/></rPr><t>-017</t></r></is></c>
<c r="B2" t="str"><f>CONCAT("mlx5_","0")</f><v>mlx5_0</v></c><c r="C2" t="inlineStr"><is/></c>
<c r="E2" t="inlineStr"><is><t>leaf01</t><rPh sb="0" eb="1"><t>x</t></rPh></is></c>
<c r="F2"><v>1.0</v></c>
<c r="G2" t="b"><v>1</v></c><c r="H2" t="e"><v>#N/A</v></c>
<c r="ZZZ2" t="inlineStr"><is><t/></is></c>
</row>"""


def sheet(rows: str) -> bytes:
    whole = zipfile.ZipFile(io.BytesIO(BOOK)).read(SHEET).decode()
    head, _, rest = whole.partition("</row>")
    end = rest.partition("</sheetData>")[2]
    return rezipped(BOOK, {SHEET: f"{head}</row>{rows}</sheetData>{end}".encode()})


def rows_of(rows: str) -> list[tuple[int, list[str]]]:
    [page], _ = xlsx.sheets(PlanContent("p", sheet(rows)))
    return [*xlsx.rows(plans.NOWHERE, page, [])]


def test_cells_of_all_kinds() -> None:
    """Formatted and phonetic text, formulas, numbers, truth values, errors, as they are shown."""
    (_, _), (number, cells) = rows_of(STYLED)
    assert number == 2
    assert cells[:8] == ["gpu-017", "mlx5_0", "", "", "leaf01", "1", "TRUE", "#N/A"]
    assert len(cells) == 8  # without the empty one to the right of the last column that is read


def test_a_cell_at_the_bottom() -> None:
    """The rows above a formatted cell in the last row cost nothing."""
    found = '<row r="9"><c r="F9" t="inlineStr"><is><t>1</t></is></c></row>'
    skipped = "1 row skipped, without a far end (the first: p, sheet Links, row 9)"
    start = time.process_time()
    message = refusal(sheet(f'{found}<row r="1048576"><c r="A1048576" s="1"/></row>'))
    assert message == f"p, sheet Links: no cables: {skipped}; sheet 'Old' is hidden: skipped"
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ('<row r="9"><c/></row>', "row 9 below row 9"),
        ('<row r="8"><c/></row>', "row 8 below row 9"),
        ('<row r="-1"><c/></row>', "row -1 below row 9"),
        ('<row r="1048577"><c/></row>', "row 1048577, and a sheet has 1048576"),
        ('<row r="10"><c r="AMK10"><v>1</v></c></row>', "a text in column 1025; 1024 columns are"),
        (
            '<row r="10"><c r="B10"/><c r="A10"/><c r="B10"/></row>',
            "two cells in column 2 of row 10",
        ),
    ],
)
def test_no_row_and_no_cell_is_lost(row: str, wrong: str) -> None:
    """What no program writes, and openpyxl's own rows leave out, refuses the workbook."""
    found = '<row r="9"><c r="F9" t="inlineStr"><is><t>1</t></is></c></row>'
    message = refusal(sheet(found + row))
    assert message.startswith(f"p, sheet Links, row 10: no XLSX workbook: {wrong}")


def test_columns_far_to_the_right() -> None:
    """A table may begin, or have its remarks, right of the first 128 columns."""
    one = plans.cable("gpu-017 mlx5_0", "leaf01 1", fields={"Label": "C-1"})
    table = [[""] * 200 + row for row in plans.rows([one], "bare")]
    assert plans.of(plans.read(plans.workbook({"L": table}))) == plans.meaning([one])


def strike(sheet: Any, cells: str) -> None:
    for cell in sheet[cells][0]:
        cell.font = Font(strike=True)


def crossed(sheet: Any) -> None:
    for number in (3, 4, 5, 6, 7):
        sheet.append([f"gpu-{number}", "mlx5_1", "", "", "leaf01", number, None, None, "x"])
    sheet.row_dimensions[3].hidden = True
    strike(sheet, "A4:J4")
    strike(sheet, "I5:I5")
    strike(sheet, "A6:F6")
    sheet["I6"] = "removed"
    swp = TextBlock(InlineFont(), "swp")
    sheet["F7"] = CellRichText(swp, TextBlock(InlineFont(strike=True), "1"), "7")


def test_hidden_and_struck_rows() -> None:
    """What a reader of the sheet does not see is said; what is crossed out is not read."""
    plan = read_one(edited(crossed))
    assert [(one.place.row, one.b.interface) for one in plan.cables] == [
        *((2, "1"), (3, "3"), (5, "5"), (7, "swp7"))
    ]
    assert plan.cables[2].fields == {}
    assert plan.notes == (
        "1 row hidden, and read (the first: row 3)",
        "1 row struck through, and left out (the first: row 4)",
        "3 rows struck through in part, which is not read (the first: row 5)",
        "1 row skipped, not a cable (the first: p, sheet Links, row 6)",
    )


def test_runs_of_text_in_a_struck_cell() -> None:
    """A run with a font of its own counts by that; without one it has that of the cell."""

    def change(sheet: Any) -> None:
        sheet["F2"] = CellRichText("old ", TextBlock(InlineFont(), "swp2"))
        strike(sheet, "F2:F2")

    plan = read_one(edited(change))
    assert plan.cables[0].b.interface == "swp2"


def test_dates_and_truth_values_are_text() -> None:
    """As a spreadsheet program shows them, in columns that are carried."""
    texts = {"K1": "Installed", "L1": "Tested", "M1": "At"}
    moment = DAY + timedelta(hours=3, minutes=4)
    plan = read_one(edited(cells(**texts, K2=DAY, L2=True, M2=moment)))
    found = {"Installed": "2026-01-02", "Tested": "TRUE", "At": "2026-01-02 03:04:00"}
    assert found.items() <= plan.cables[0].fields.items()


def test_cells_in_any_order() -> None:
    """The column of a cell is that of its reference."""
    row = '<row r="1"/><row r="2"><c r="C2"><v>3</v></c><c r="A2"><v>1</v></c><c><v>2</v></c></row>'
    assert rows_of(row)[1] == (2, ["1", "2", "3"])


def test_without_openpyxl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(Unavailable, match=r"needs openpyxl: pip install '\.\[plan\]' in the ch"):
        plans.read(BOOK)


def test_too_many_cables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.cabling.plans.model.MAX_CABLES", 1)
    text = f"{HEADER}\ngpu,1,leaf,1\ngpu,2,leaf,2\n"
    assert refusal(text) == "p, row 3: more than 1 cables"
