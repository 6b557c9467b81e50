"""Extended headers of tars: read as tarfile, GNU tar and git write them, refused where a stranger
made them large, endless or wrong.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.snapshot import archive
from agent.snapshot.archive import MAX_EXTENDED_SIZE, entries
from tests.support import snapshots
from tests.support.checkouts import committed, git
from tests.support.snapshots import SMALL, SPEED, Member, Snapshot, lay, member, members, tar

X, G = tarfile.XHDTYPE, tarfile.XGLTYPE
LONG = "sys/" + "directory/" * 30 + "file"


def record(keyword: str, value: str) -> bytes:
    """A record of a pax header; its length counts itself."""
    rest = f" {keyword}={value}\n".encode("utf-8", "surrogateescape")
    length = len(rest) + 1
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return f"{length}".encode() + rest


def header(data: bytes, kind: bytes = X) -> Member:
    return member("extended", data, type=kind)


def read(folder: Path, content: Iterable[Member]) -> Snapshot:
    """The entries of a tar of these members, and of a file sys/last behind them."""
    return entries(tar(folder / "made.tar", [*content, member("sys/last", b"last")]))


def refusal(folder: Path, content: Iterable[Member]) -> str:
    """The line by which such a tar is refused."""
    path = tar(folder / "refused.tar", [*members(SMALL), *content, member("sys/last", b"last")])
    with pytest.raises(Malformed) as refused:
        entries(path)
    assert str(refused.value).isprintable()
    return str(refused.value)


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ([header(record("path", LONG))], LONG),
        ([header(record("path", LONG), tarfile.SOLARIS_XHDTYPE)], LONG),
        ([header(record("mtime", "1777888800.5") + record("path", LONG))], LONG),
        ([header(record("path", "sys/one") + record("path", LONG))], LONG),
        ([header(record("comment", "5 path=x\n"))], "sys/short"),
        ([header(record("path", "sys/\udcff\udcfe"))], "sys/\udcff\udcfe"),
        ([header(record("size", "5"))], "sys/short"),
        ([header(b"")], "sys/short"),
        ([header(record("comment", "f00f"), G)], "sys/short"),
        ([header(record("path", "sys/all"), G)], "sys/short"),
        ([header(record("comment", "f00f"), G), header(record("path", LONG))], LONG),
        ([header(LONG.encode() + b"\0", tarfile.GNUTYPE_LONGNAME)], LONG),
        ([header(b"sys/a\0junk", tarfile.GNUTYPE_LONGNAME)], "sys/a"),
    ],
)
def test_an_extended_header_is_about_the_next_member(
    tmp_path: Path, before: list[Member], name: str
) -> None:
    """And about no other; a global header names nobody."""
    found = read(tmp_path, [*before, member("sys/short", b"12345")])
    assert found == {name: b"12345", "sys/last": b"last"}


@pytest.mark.parametrize("long", [record("linkpath", "x" * 300), b"x" * 300])
def test_the_target_of_a_link_may_be_long(tmp_path: Path, long: bytes) -> None:
    """In a pax header and in GNU's."""
    kind = tarfile.GNUTYPE_LONGLINK if long.startswith(b"xx") else X
    found = read(tmp_path, [header(long, kind), member("sys/link", "short")])
    assert found == {"sys/link": "x" * 300, "sys/last": b"last"}


TOO_LARGE = "member 'extended' is an extended header of 4097 bytes; the limit is 4096"
NO_PAX, NO_SIZE = "no pax header, at octet 0", "is a pax header with a size that is none"
NOT_PLAIN = "is no plain file, folder or link"
REFUSED: dict[str, tuple[list[Member], str]] = {
    "too large": ([header(b"1" * (MAX_EXTENDED_SIZE + 1))], TOO_LARGE),
    "a large name": ([header(bytes(4097), tarfile.GNUTYPE_LONGNAME)], TOO_LARGE),
    "a large target": ([header(bytes(4097), tarfile.GNUTYPE_LONGLINK)], TOO_LARGE),
    "a large global one": ([header(bytes(4097), G)], TOO_LARGE),
    "digits": ([header(b"1" * MAX_EXTENDED_SIZE)], f"member 'extended' is {NO_PAX}"),
    "a length past its end": (
        [header(record("mtime", "1") + b"99 path=x\n")],
        "member 'extended' is no pax header, at octet 11",
    ),
    "a length before its value": ([header(b"5 path=x\n")], NO_PAX),
    "a length of nothing": ([header(b"0 path=x\n")], NO_PAX),
    "a keyword of nothing": ([header(b"5 =x\n")], NO_PAX),
    "no line end": ([header(b"9 path=xy")], NO_PAX),
    "a size of words": ([header(record("size", "many"))], f"member 'extended' {NO_SIZE}"),
    "a size of 4,000 digits": ([header(record("size", "9" * 4000))], NO_SIZE),
    "an unprintable name": (
        [header(b"1" + record("path", "\x1b[31m")), member("x")],
        "member 'extended' is no pax header",
    ),
    "a name with an escape": (
        [header(record("path", "sys/\x1b[31m\n")), member("x", type=tarfile.FIFOTYPE)],
        rf"member 'sys/\x1b[31m\n' {NOT_PLAIN}",
    ),
    "five in a row": ([header(b"")] * 5, "extended headers without end"),
    "an old sparse file": (
        [member("sys/bad", b"12345", type=tarfile.GNUTYPE_SPARSE)],
        f"member 'sys/bad' {NOT_PLAIN}",
    ),
    "a sparse file": (
        [header(record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0")), member("a/b")],
        f"member 'a/b' {NOT_PLAIN}",
    ),
    "a volume's name": ([member("sys/bad", type=b"V")], f"member 'sys/bad' {NOT_PLAIN}"),
    "a name that leads outside": (
        [header(record("path", "../bad")), member("sys/good")],
        "member '../bad' leads outside the archive",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_extended_header_refuses_the_archive(tmp_path: Path, case: str) -> None:
    content, text = REFUSED[case]
    assert text in refusal(tmp_path, content)


def test_an_extended_header_of_a_negative_size_is_refused(tmp_path: Path) -> None:
    """GNU's binary numbers have a sign."""
    odd = member("extended", type=X, size=-1)
    with pytest.raises(Malformed, match="'extended' is an extended header of -1 bytes"):
        entries(tar(tmp_path / "odd.tar", [odd], tarfile.GNU_FORMAT))


def test_an_extended_header_at_the_end_is_refused(tmp_path: Path) -> None:
    """The member that it is about is missing."""
    path = tar(tmp_path / "end.tar", [*members(SMALL), header(record("path", "sys/lost"))])
    with pytest.raises(Malformed, match="ends after an extended header"):
        entries(path)


def test_a_large_header_is_refused_before_its_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 MiB of digits in a file of 20 kB the first block is enough."""
    path = tmp_path / "digits.tar.gz"
    blocks: list[int] = []
    big = member("extended", b"", type=X, size=16 << 20)[0].tobuf()
    path.write_bytes(gzip.compress(big + b"1" * (16 << 20)))
    whole = gzip.GzipFile.read

    def counted(file: gzip.GzipFile, size: int | None = -1) -> bytes:
        data = whole(file, size)
        blocks.append(len(data))
        return data

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(Malformed, match="an extended header of 16777216 bytes"):
        entries(str(path))
    assert blocks == [tarfile.BLOCKSIZE]


def test_no_extended_header_reaches_tarfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parser takes time that is quadratic in a header's size: 9 s for 64 KiB of digits."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("tarfile parses a header")

    for name in ("_proc_pax", "_proc_gnulong", "_proc_sparse", "fromtarfile"):
        monkeypatch.setattr(tarfile.TarInfo, name, refuse)
    found = read(tmp_path, [header(record("path", LONG)), member("sys/short", b"1")])
    assert found == {LONG: b"1", "sys/last": b"last"}
    with suppress(Malformed):
        read(tmp_path, [header(b"1" * MAX_EXTENDED_SIZE)])


@pytest.mark.parametrize("form", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_every_format_of_gnu_tar_is_read(tmp_path: Path, form: str) -> None:
    """`posix` writes a pax header for each member, for times of nanoseconds."""
    folder, path = lay(tmp_path / "node-17", SMALL), str(tmp_path / "made.tar.gz")
    command = ["tar", f"--format={form}", "-czf", path, "-C", str(tmp_path), "node-17"]
    subprocess.run(command, check=True)
    assert snapshots.text(path) == snapshots.text(folder)


def test_an_archive_of_git_is_read(tmp_path: Path) -> None:
    """`git archive` begins with a global header, of the commit."""
    folder, path = lay(tmp_path / "node", SMALL), str(tmp_path / "made.tar")
    git(committed(Path(folder)), "archive", "--prefix=node/", "-o", path, "HEAD")
    assert Path(path).read_bytes()[156:157] == b"g"
    assert snapshots.report(path)["labels"][SPEED] == "400G"


text = st.text(st.characters(exclude_characters="/\0\n"), min_size=1, max_size=120).filter(
    lambda name: name not in {".", ".."}
)
paths = st.lists(text, min_size=1, max_size=4).map(lambda parts: "sys/" + "/".join(parts))
contents = st.binary(max_size=1200) | st.text("abc/é", min_size=1, max_size=200) | st.none()


@pytest.mark.slow
@given(st.dictionaries(paths, contents, max_size=6), st.sampled_from([0, 1, 2]))
@settings(deadline=None)
def test_what_tarfile_writes_is_read(written: dict[str, Any], form: Literal[0, 1, 2]) -> None:
    """Names, targets and contents of any text, in ustar, GNU and pax format."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "made.tar")
        with suppress(ValueError):  # a name that ustar cannot have
            tar(path, members(written), form)
            _check_read(str(path), written)


def _check_read(path: str, written: dict[str, Any]) -> None:
    try:
        found = entries(path)
    except Malformed as error:
        assert "leads outside" in str(error)  # noqa: PT017 - links of any text may
        return
    assert found == {name.rstrip("/"): content for name, content in written.items()}


@pytest.mark.slow
@given(
    changes=st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 255)), max_size=6),
    form=st.sampled_from([1, 2]),
    data=st.binary(max_size=64),
)
@settings(deadline=None, max_examples=300)
def test_a_tar_with_flipped_octets_is_read_or_refused(
    changes: list[tuple[int, int]], form: Literal[1, 2], data: bytes
) -> None:
    """Nothing but Malformed comes out, whatever is in an extended header under a right checksum."""
    buffer = io.BytesIO()
    content = [header(record("path", LONG) + data), member("sys/a", b"a"), member(LONG * 2, b"b")]
    for info, octets in content:
        buffer.write(info.tobuf(form) + octets + bytes(-len(octets) % tarfile.BLOCKSIZE))
    made = bytearray(buffer.getvalue() + bytes(1024))
    for place, value in changes:
        made[place % len(made)] = value
    _repair_checksums(made)
    with TemporaryDirectory() as folder:
        path = Path(folder, "flipped.tar")
        path.write_bytes(made)
        with suppress(Malformed):
            entries(str(path))


def _repair_checksums(made: bytearray) -> None:
    """Give each block that looks like a header its right checksum."""
    for at in range(0, len(made), tarfile.BLOCKSIZE):
        block = made[at : at + tarfile.BLOCKSIZE]
        if block[257:262] == b"ustar":
            total = sum(block) - sum(block[148:156]) + 8 * 32
            made[at + 148 : at + 156] = b"%06o\0 " % (total & 0o777777)


def test_the_limit_is_that_of_a_path() -> None:
    """A path of the kernel fits: PATH_MAX is 4,096."""
    assert archive.MAX_EXTENDED_SIZE == 4096
