"""The reader of kernel files: errors that are not problems, errors that are, and its limits."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed, Unavailable
from agent.model import Problem
from agent.sysfs.reader import NOT_AVAILABLE, PAGE, TABLE, UNSET, LiveRoot, Reader

FILE, FOLDER, LINK = (
    "sys/class/infiniband/x/rate",
    "sys/class/infiniband",
    "sys/class/infiniband/x/device",
)
ODD = sorted(set(errno.errorcode) - NOT_AVAILABLE - {errno.ETIMEDOUT})


class DictRoot:
    """A Root over a dict: bytes are a file, a list is a folder, a text is a link, a number is an
    errno.
    """

    def __init__(self, entries: Mapping[str, bytes | list[str] | str | int]) -> None:
        self.asked: list[tuple[str, int]] = []
        self._entries = entries

    def read(self, path: str, limit: int) -> bytes:
        self.asked.append((path, limit))
        data = self._entry(path)
        return data[:limit] if isinstance(data, bytes) else b""

    def names(self, path: str) -> list[str]:
        names = self._entry(path)
        return names if isinstance(names, list) else []

    def link(self, path: str) -> str:
        target = self._entry(path)
        if not isinstance(target, str):
            raise OSError(errno.EINVAL, "no link", path)
        return target

    def _entry(self, path: str) -> bytes | list[str] | str | int:
        entry = self._entries.get(path, errno.ENOENT)
        if isinstance(entry, int):
            raise OSError(entry, os.strerror(entry), path)
        return entry


def reader(entry: bytes | list[str] | str | int, path: str = FILE) -> Reader:
    return Reader(DictRoot({path: entry}), "rdma")


READS: list[tuple[str, Callable[[Reader], object]]] = [
    ("data", lambda reader: reader.data(FILE)),
    ("text", lambda reader: reader.text(FILE)),
    ("value", lambda reader: reader.value(FILE, int)),
    ("names", lambda reader: reader.names(FILE)),
    ("link", lambda reader: reader.link(FILE)),
    ("table", lambda reader: reader.table(FILE, str)),
]
every_read = pytest.mark.parametrize(
    "read", [read for _, read in READS], ids=[name for name, _ in READS]
)


@every_read
@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENODATA])
def test_a_missing_attribute_is_no_problem(read: Callable[[Reader], object], number: int) -> None:
    """An attribute that a driver does not have is None, and not a problem."""
    subject = reader(number)
    assert read(subject) is None
    assert subject.problems == []


@every_read
def test_every_other_errno_is_a_problem(read: Callable[[Reader], object]) -> None:
    """The value is None; the problem names the path and the errno."""
    for number in ODD:
        subject = reader(number)
        if (read(subject), number) != ("", errno.EINVAL):  # readlink's error for a folder
            assert subject.problems == [
                Problem("rdma", f"/{FILE}", errno.errorcode[number], os.strerror(number))
            ]


@every_read
def test_a_read_that_timed_out_ends_the_reading(read: Callable[[Reader], object]) -> None:
    """The next attribute of the device is not read; the error names the one that timed out."""
    with pytest.raises(Unavailable, match=f"^/{FILE}: .*timed out"):
        read(reader(errno.ETIMEDOUT))


def test_an_errno_can_be_quiet() -> None:
    """Where an errno means that an attribute is unset, that errno is not a problem; others are."""
    unset, broken = reader(errno.EINVAL), reader(errno.EIO)
    assert unset.text(FILE, quiet=UNSET) is None
    assert unset.value(FILE, int, quiet=UNSET) is None
    assert broken.text(FILE, quiet=UNSET) is None
    assert (unset.problems, len(broken.problems)) == ([], 1)


def test_an_error_without_errno_is_a_problem() -> None:

    class Numberless(DictRoot):
        def read(self, path: str, limit: int) -> bytes:
            raise OSError(f"{path}: {limit}")

    subject = Reader(Numberless({}), "rdma")
    assert subject.text(FILE) is None
    assert [problem.error for problem in subject.problems] == [None]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"4: ACTIVE\n", "4: ACTIVE"),
        (b" \t padded \n\n", "padded"),
        (b"two\nlines\tand a tab\n", "two\nlines\tand a tab"),
        ("caf\u00e9\n".encode(), "caf\u00e9"),
        (b"", None),
        (b"\n", None),
        (b"x" * PAGE, "x" * PAGE),
    ],
)
def test_text_has_no_white_space_around_it(data: bytes, text: str | None) -> None:
    subject = reader(data)
    assert subject.text(FILE) == text
    assert subject.problems == []


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"a\0b", b"a\x1b[2Jb", b"a\rb", "a\u202eb".encode(), b"x" * (PAGE + 1)]
)
def test_what_is_no_text_is_a_problem(data: bytes) -> None:
    """Bytes that are not UTF-8, not printable or too many are refused, and not quoted."""
    subject = reader(data)
    assert subject.text(FILE) is None
    (problem,) = subject.problems
    assert problem.error is None
    assert len(problem.text) < 80


@pytest.mark.parametrize("odd", [b"\xff\xfe0", b"a\x1b[2J", "\u202ea".encode(), b"a\x0bb", b"\xc3"])
def test_an_odd_line_hides_no_other_line_of_a_table(odd: bytes) -> None:
    """A netdev name may have any bytes but a few; the lines that have such a name are left out."""
    subject = reader(b"Iface\tFlags\neth0\t0003\n" + odd + b"\t0003\n" + odd + b"\t1\neth1\t0003\n")
    assert subject.table(FILE, str) == "Iface\tFlags\neth0\t0003\neth1\t0003"
    assert subject.problems == []


@pytest.mark.parametrize("data", [b"", b"\n", b"e\t1", b"e\t1\n"])
def test_a_table_has_the_lines_of_its_file(data: bytes) -> None:
    """None at all is no problem."""
    subject = reader(data)
    assert (subject.table(FILE, str), subject.problems) == (data.decode().rstrip("\n"), [])


def test_a_table_is_bounded() -> None:
    """Of one that is longer than the limit the whole lines at its beginning are read."""
    line = b"x" * 99 + b"\n"
    subject = reader(line * (TABLE // 100 + 1))
    table = subject.table(FILE, str)
    assert table is not None
    assert set(table.split("\n")) == {"x" * 99}
    assert TABLE - 200 < len(table) <= TABLE


def test_reads_are_bounded() -> None:
    """One byte more than the limit is read, to detect a file that is too long."""
    root = DictRoot({FILE: b"1" * 5000})
    subject = Reader(root, "rdma")
    assert subject.text(FILE) is None
    assert subject.data(FILE, 10) == b"1" * 10
    assert root.asked == [(FILE, 4097), (FILE, 10)]


def test_a_value_that_makes_no_sense_is_a_problem() -> None:
    """With the file's path; a missing file is not parsed."""

    def parse(text: str) -> int:
        raise Malformed(f"{text!r} is nonsense")

    subject = reader(b"x")
    assert subject.value(FILE, parse) is None
    assert subject.value("sys/nothing", parse) is None
    assert subject.problems == [Problem("rdma", f"/{FILE}", None, "'x' is nonsense")]


def test_names_are_printable_and_in_natural_order() -> None:
    bad = ["mlx5\n1", "\x1b[2J", "caf\u00e9", "\udcff", "a\0", "\x1b" * 255]
    subject = reader(["mlx5_10", "mlx5_9", *bad, "mlx5_bond_0"], FOLDER)
    assert subject.names(FOLDER) == ["mlx5_9", "mlx5_10", "mlx5_bond_0"]
    assert [len(problem.text) < 200 for problem in subject.problems] == [True] * len(bad)
    assert all(
        problem.text.isprintable() and problem.text.isascii() for problem in subject.problems
    )


def test_a_link_is_its_target() -> None:
    """A folder in place of a link, as in a copied tree, exists but has no target."""
    assert reader("../../x", LINK).link(LINK) == "../../x"
    assert reader([], LINK).link(LINK) == ""
    assert reader([], FOLDER).link(LINK) is None


@given(data=st.binary(max_size=64) | st.text(max_size=20).map(str.encode))
def test_any_bytes_are_printable_text_or_a_problem(data: bytes) -> None:
    """A text is printable; None is reported unless the file was blank."""
    subject = reader(data)
    text = subject.text(FILE)
    assert text is None or (
        text == text.strip() != ""
        and set(text) - {"\n", "\t"} == {c for c in text if c.isprintable()}
    )
    assert bool(subject.problems) == (text is None and bool(data.decode(errors="replace").strip()))


# The live root.


@pytest.fixture
def live(tmp_path: Path) -> LiveRoot:
    (tmp_path / "sys").mkdir()
    return LiveRoot(str(tmp_path / "sys"), str(tmp_path / "proc"))


def test_sys_may_be_mounted_elsewhere(live: LiveRoot, tmp_path: Path) -> None:
    """`sys/` and `proc/` are read below the given mount points."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "sys/attribute").write_text("1\n")
    (tmp_path / "proc/table").write_text("2\n")
    (tmp_path / "sys/link").symlink_to("attribute")
    assert live.read("sys/attribute", PAGE) == live.read("sys/link", PAGE) == b"1\n"
    assert live.read("proc/table", PAGE) == b"2\n"
    assert live.link("sys/link") == "attribute"
    assert sorted(live.names("sys/")) == ["attribute", "link"]


def test_a_fifo_does_not_block(live: LiveRoot, tmp_path: Path) -> None:
    """A read of a FIFO returns at once, with a writer and without one."""
    os.mkfifo(tmp_path / "sys/fifo")
    assert live.read("sys/fifo", PAGE) == b""
    writer = os.open(tmp_path / "sys/fifo", os.O_RDWR | os.O_NONBLOCK)
    try:
        with pytest.raises(BlockingIOError):
            live.read("sys/fifo", PAGE)
    finally:
        os.close(writer)


def test_an_endless_file_is_cut_off(live: LiveRoot, tmp_path: Path) -> None:
    (tmp_path / "sys/endless").symlink_to("/dev/zero")
    assert live.read("sys/endless", TABLE) == bytes(TABLE)
    assert live.read("sys/endless", 7) == bytes(7)


def test_a_folder_is_no_file_and_a_file_no_folder(live: LiveRoot, tmp_path: Path) -> None:
    """Both fail with the kernel's errno, and the descriptor is closed."""
    (tmp_path / "sys/folder").mkdir()
    (tmp_path / "sys/file").touch()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(IsADirectoryError):
        live.read("sys/folder", PAGE)
    with pytest.raises(NotADirectoryError):
        live.names("sys/file")
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_table_of_the_kernel_is_read_whole() -> None:
    """A procfs table is returned about a page at a time; all of it is read, up to the limit."""
    last = Path("/proc/self/maps").read_text().splitlines()[-1]
    data = LiveRoot().read("proc/self/smaps", TABLE)
    assert len(data) > 2 * PAGE
    assert last.encode() in data
    assert len(LiveRoot().read("proc/self/smaps", 3 * PAGE)) == 3 * PAGE
