"""The log: a line for a change, silence otherwise, and nothing that a stranger can do with it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model import Problem
from agent.telemetry.log import (
    BURST,
    INTERVAL,
    MOST_SUBJECTS,
    Line,
    Log,
    as_json,
    as_text,
    to_stderr,
)
from agent.text import visible

if TYPE_CHECKING:
    from pathlib import Path

ANY = st.text(st.characters(codec=None), max_size=400)
AT = 1777888800.25  # 2026-05-04 10:00 UTC and a quarter of a second


class Desk:
    """A log over a list, and its clocks; `full` is a pipe that nobody reads."""

    def __init__(self, form: str = "text", *, verbose: bool = False) -> None:
        self.now = 0.0
        self.full = False
        self.written: list[bytes] = []
        self.log = Log(
            form, verbose=verbose, write=self.write, clock=lambda: AT, steady=lambda: self.now
        )

    def write(self, data: bytes) -> bool:
        if not self.full:
            self.written.append(data)
        return not self.full

    def lines(self) -> list[str]:
        """What was written since the last time, without the stamps."""
        lines = [
            data.decode().removeprefix("2026-05-04T10:00:00.250Z ").rstrip("\n")
            for data in self.written
        ]
        self.written.clear()
        return lines


# What is said.


def test_a_change() -> None:
    """What, from, to, why."""
    desk = Desk()
    desk.log.change("P/speed.current", "3200G", "2800G", "mlx5_3 is DOWN")
    assert desk.written == [
        b"2026-05-04T10:00:00.250Z info P/speed.current: 3200G -> 2800G (mlx5_3 is DOWN)\n"
    ]


def test_a_change_as_json() -> None:
    """The same, with null for nothing."""
    desk = Desk("json")
    desk.log.change("x", None, "leaf-1")
    [line] = desk.written
    said = {
        "time": "2026-05-04T10:00:00.250Z",
        "level": "info",
        "what": "x",
        "to": "leaf-1",
        "skipped": 0,
    }
    assert json.loads(line) == said | {"from": None, "why": None}


def test_no_change_is_silence() -> None:
    """The same value, the same labels, the same problems."""
    desk, problem = Desk(), Problem("rdma", "mlx5_0", "EIO", "cannot be read")
    desk.log.problems([problem])
    desk.lines()
    desk.log.change("x", "a", "a")
    desk.log.labels({"x": "a"}, {"x": "a"})
    desk.log.problems([problem, problem][:1])
    desk.log.detail("x", "only with -v")
    assert desk.log.flush() is None
    assert desk.lines() == []


def test_labels() -> None:
    """A line for each that is not what it was."""
    desk = Desk()
    desk.log.labels(
        {"a": "1", "b": "1", "c": "1"}, {"b": "2", "c": "1", "d": "1"}, "link of mlx5_0 is down"
    )
    because = "(link of mlx5_0 is down)"
    assert desk.lines() == [
        f"info a: 1 -> - {because}",
        f"info b: 1 -> 2 {because}",
        f"info d: - -> 1 {because}",
    ]


def test_problems() -> None:
    """New, another, over; several of one subject are one."""
    desk = Desk()
    one, two = (
        Problem("rdma", "mlx5_0", "EIO", "no rate"),
        Problem("rdma", "mlx5_0", None, "no state"),
    )
    for problems in ([one], [one, two], []):
        desk.log.problems(problems)
    assert desk.lines() == [
        'warning rdma mlx5_0: - -> "EIO: no rate"',
        'warning rdma mlx5_0: "EIO: no rate" -> "EIO: no rate; no state"',
        'info rdma mlx5_0: "EIO: no rate; no state" -> -',
    ]


def test_notes_and_details() -> None:
    """What is no change; details only where they are asked for."""
    desk = Desk(verbose=True)
    desk.log.note("start", "bwagent 0.1.0")
    desk.log.note("api", "PATCH refused", "error")
    desk.log.detail("ib", "asked 8 ports")
    assert desk.lines() == [
        "info start: bwagent 0.1.0",
        "error api: PATCH refused",
        "debug ib: asked 8 ports",
    ]


# What a stranger cannot do.


@given(ANY, ANY, ANY)
def test_any_text_is_one_line(before: str, after: str, why: str) -> None:
    """No control character, no second line, at most what a pipe takes as a whole; in both
    formats.
    """
    line = Line(AT, "info", "x", before, after, why)
    for form in (as_text, as_json):
        data = form(line)
        assert len(data) <= select.PIPE_BUF
        assert data.endswith(b"\n")
        assert data[:-1].decode().isprintable()
    fields = json.loads(as_json(line))
    assert (fields["from"], fields["to"], fields["why"]) == tuple(
        visible(text, 200) for text in (before, after, why)
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("leaf-1.pod/3", "leaf-1.pod/3"),
        ("a -> b (fine)", '"a -> b (fine)"'),
        ("-", '"-"'),
        ("", '""'),
        ('x" -> "y', r'"x\" -> \"y"'),
        ("a\n2026 error: b", r'"a\\n2026 error: b"'),
        ("\x1b[2J", r'"\\x1b[2J"'),
        ("\u202egnp", r'"\\u202egnp"'),
        ("\udcff", r'"\\udcff"'),
        ("é", '"é"'),
        ("x" * 300, '"' + "x" * 199 + '…"'),
    ],
)
def test_a_name_forges_nothing(name: str, shown: str) -> None:
    """What is more than a plain word stands in quotes."""
    desk = Desk()
    desk.log.change("x", None, name)
    assert desk.lines() == [f"info x: - -> {shown}"]


# What it costs.


def test_a_subject_that_flaps_ends_with_the_truth() -> None:
    """A few lines at once, then one in a while, the last of them the latest, with the number of
    those in between.
    """
    desk = Desk()
    for number in range(100):
        desk.log.change("speed", str(number), str(number + 1))
    desk.log.change("other", "a", "b")
    assert len(desk.lines()) == BURST + 1
    assert desk.log.flush() == pytest.approx(INTERVAL)
    assert desk.lines() == []
    desk.now += INTERVAL
    assert desk.log.flush() is None
    assert desk.lines() == ["info speed: 99 -> 100 [94 more in between]"]
    desk.now += INTERVAL
    desk.log.change("speed", "100", "1")
    assert desk.lines() == ["info speed: 100 -> 1"]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=200))
def test_every_subject_is_told_of_and_bounded(steps: list[tuple[int, float]]) -> None:
    """Over any history: no more lines than its share, and after enough silence its last value is in
    the log.
    """
    desk, values = Desk("json"), dict.fromkeys("0123", 0)
    for subject, pause in steps:
        desk.now += pause
        desk.log.flush()
        values[str(subject)] += 1
        desk.log.change(str(subject), str(values[str(subject)] - 1), str(values[str(subject)]))
    share = BURST + 1 + desk.now / INTERVAL
    desk.now += INTERVAL
    assert desk.log.flush() is None
    told = [json.loads(data) for data in desk.written]
    for what, value in values.items():
        mine = [line for line in told if line["what"] == what]
        assert len(mine) <= share
        assert sum(1 + line["skipped"] for line in mine) == value
        assert not mine or mine[-1]["to"] == str(value)


def test_subjects_are_forgotten() -> None:
    """Memory is bounded; one that goes says first what it had kept."""
    desk = Desk()
    for number in range(BURST + 1):
        desk.log.change("first", str(number), str(number + 1))
    assert len(desk.lines()) == BURST
    for number in range(2 * MOST_SUBJECTS):
        desk.log.note(f"subject {number}", "was here")
    lines = desk.lines()
    assert f"info first: {BURST} -> {BURST + 1}" in lines
    assert len(lines) == 2 * MOST_SUBJECTS + 1
    assert desk.log.flush() is None


def test_what_cannot_be_written_is_counted() -> None:
    """The next line that passes comes after their number."""
    desk = Desk()
    desk.full = True
    for name in "abc":
        desk.log.note(name, "lost")
    desk.full = False
    desk.log.note("d", "written")
    assert desk.lines() == ["warning log: 3 lines were lost", "info d: written"]
    desk.log.note("e", "written")
    assert desk.lines() == ["info e: written"]


def run(code: str, stderr: int) -> subprocess.CompletedProcess[bytes]:
    """A process of its own, as it is about descriptor 2."""
    return subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=stderr, timeout=20, check=False
    )


def test_a_pipe_that_nobody_reads_stops_nothing(repository: Path) -> None:
    """What fits goes in, the rest is dropped at once, and every line that arrives is whole."""
    code = (
        f"import sys; sys.path.insert(0, {str(repository)!r})\n"
        "from agent.telemetry.log import Log\nlog = Log()\n"
        "for number in range(5000): log.note(str(number), 'x' * 150)\nprint(log.lost)"
    )
    reading, writing = os.pipe()
    done = run(code, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        lines = pipe.read().splitlines()
    assert done.returncode == 0
    assert len(lines) + int(done.stdout) == 5000
    assert all(line.endswith(b"x" * 150) for line in lines)


@pytest.mark.parametrize("closed", [True, False])
def test_no_reader_is_no_error(repository: Path, *, closed: bool) -> None:
    """Standard error closed from the start, or its reader gone."""
    code = (
        f"import sys, os; sys.path.insert(0, {str(repository)!r})\n"
        f"{'os.close(2)' if closed else ''}\nfrom agent.telemetry.log import to_stderr\nprint(to_stderr(b'x'))"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = run(code, writing)
    os.close(writing)
    assert (done.returncode, done.stdout) == (0, b"False\n")


def test_standard_error_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    """Whole, at once."""
    assert to_stderr(b"line\n")
    assert capfd.readouterr().err == "line\n"


@given(ANY, st.integers(1, 300))
def test_visible(text: str, longest: int) -> None:
    """Printable, bounded, and unaltered where it was both already."""
    shown = visible(text, longest)
    assert shown.isprintable()
    assert len(shown) <= longest
    assert shown == text or not text.isprintable() or len(text) > longest
