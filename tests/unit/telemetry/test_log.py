"""The log: whole lines of bounded length and number, whatever text they have in them."""

from __future__ import annotations

import json
import math
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.telemetry.log import (
    LINE_INTERVAL,
    MAX_BURST,
    MAX_FIELD_LENGTH,
    MAX_LINE_LENGTH,
    MAX_SUBJECTS,
    Condition,
    ConditionLog,
    Log,
    write_stderr,
)
from agent.text import visible

ANY = st.text(st.characters(codec=None), max_size=400)
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Desk:
    """A log over a list, and its clock; `full` is a pipe without a reader."""

    def __init__(self, form: str = "text", *, verbose: bool = False) -> None:
        self.now = 0.0
        self.full = False
        self.written: list[bytes] = []
        self.log = Log(form, verbose=verbose, write=self.write, clock=lambda: self.now)

    def write(self, data: bytes) -> bool:
        if not self.full:
            self.written.append(data)
        return not self.full

    def lines(self) -> list[str]:
        """Return what was written since the last time, without the times."""
        lines = [data.decode().rstrip("\n").partition(" ") for data in self.written]
        assert all(STAMP.fullmatch(stamp) for stamp, _, _ in lines)
        self.written.clear()
        return [line for _, _, line in lines]

    def change(self, key: str, before: int, after: int) -> None:
        self.log.info("label changed", **{"key": key, "from": str(before), "to": str(after)})


def written(form: str, **fields: str | int) -> str:
    """Return the line of 2026-05-04 10:00 UTC and a quarter of a second."""
    lines: list[str] = []

    def write(data: bytes) -> bool:
        lines.append(data.decode())
        return True

    Log(form, write=write, wall=lambda: 1777888800.25).info("label changed", **fields)
    [line] = lines
    return line


# The formats.


def test_text() -> None:
    """Time, level, message, fields; a field of None is left out."""
    assert written("text", key="P/speed.current", reason="mlx5_3 is DOWN") == (
        '2026-05-04T10:00:00.250Z info label changed key=P/speed.current reason="mlx5_3 is DOWN"\n'
    )
    desk = Desk()
    desk.log.warning("label refused", key="x", status=422, reason=None)
    desk.log.info("agent started")
    assert desk.lines() == ["warning label refused key=x status=422", "info agent started"]


def test_json() -> None:
    """The same as an object, with the fields beside time, level and msg."""
    found = json.loads(written("json", key="x", status=422, to="leaf-1"))
    head = {"time": "2026-05-04T10:00:00.250Z", "level": "info", "msg": "label changed"}
    assert found == head | {"key": "x", "status": 422, "to": "leaf-1"}
    assert list(found)[:3] == list(head)


def test_details_are_shown_with_verbose() -> None:
    """`-v` shows debug lines; without it they cost no token of their subject."""
    loud, quiet = Desk(verbose=True), Desk()
    for desk in (loud, quiet):
        desk.log.debug("ports queried", count=8)
    assert loud.lines() == ["debug ports queried count=8"]
    assert quiet.lines() == []


# Text of strangers.


@given(st.lists(ANY, min_size=1, max_size=6))
def test_any_text_is_one_line(values: list[str]) -> None:
    """No control character, no second line, at most PIPE_BUF bytes; in both formats."""
    fields = {f"field_{number}": value for number, value in enumerate(values)}
    for form in ("text", "json"):
        desk = Desk(form)
        desk.log.info("label changed", **fields)
        [data] = desk.written
        assert len(data) <= select.PIPE_BUF
        assert data.endswith(b"\n")
        assert data[:-1].decode().isprintable()
    found = json.loads(data)
    shown = [visible(text, MAX_FIELD_LENGTH) for text in values]
    if sum(map(len, shown)) <= MAX_LINE_LENGTH:
        assert [found[name] for name in fields] == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("leaf-1.pod/3", "leaf-1.pod/3"),
        ("a to=b (fine)", '"a to=b (fine)"'),
        ("-", '"-"'),
        ("", '""'),
        ('x" to="y', r'"x\" to=\"y"'),
        ("a\n2026 error b", r'"a\\n2026 error b"'),
        ("\x1b[2J", r'"\\x1b[2J"'),
        ("\u202egnp", r'"\\u202egnp"'),
        ("\udcff", r'"\\udcff"'),
        ("é", '"é"'),
        ("x" * 600, '"' + "x" * 499 + '…"'),
    ],
)
def test_a_name_forges_nothing(name: str, shown: str) -> None:
    """A value other than a plain word is quoted."""
    desk = Desk()
    desk.log.info("label added", key="x", to=name)
    assert desk.lines() == [f"info label added key=x to={shown}"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_label_key_is_never_cut(form: str) -> None:
    """The longest one that Kubernetes allows, beside a server's message that names more keys."""
    key = f"{'p' * 253}/{'n' * 63}"
    desk = Desk(form)
    desk.log.warning("label refused", key=key, status=422, reason="not " + "k/a, " * 90)
    [data] = desk.written
    assert key in data.decode()
    assert "not " + "k/a, " * 80 in data.decode()


def test_every_json_line_has_a_message() -> None:
    """A line without fields, and the one about lost lines, too."""
    desk = Desk("json", verbose=True)
    desk.full = True
    desk.log.info("agent started")
    desk.full = False
    desk.log.debug("node read", node="n1")
    lines = [json.loads(data) for data in desk.written]
    assert [line["msg"] for line in lines] == ["log lines lost", "node read"]
    assert all({"time", "level"} <= line.keys() for line in lines)


# The limits.


def test_a_flapping_subject_ends_with_its_last_line() -> None:
    """A burst, then one line per interval: the last one, with the number of skipped ones."""
    desk = Desk()
    for number in range(100):
        desk.change("speed", number, number + 1)
    desk.change("other", 1, 2)
    assert len(desk.lines()) == MAX_BURST + 1
    assert desk.log.release_due() == pytest.approx(LINE_INTERVAL)
    assert desk.lines() == []
    desk.now += LINE_INTERVAL
    assert desk.log.release_due() == math.inf
    assert desk.lines() == ["info label changed key=speed from=99 to=100 skipped=94"]
    desk.now += LINE_INTERVAL
    desk.change("speed", 100, 1)
    assert desk.lines() == ["info label changed key=speed from=100 to=1"]


@pytest.mark.parametrize("begin", ["events not written", "policy not checked"])
def test_a_state_of_the_node_uses_up_no_line_of_another(begin: str) -> None:
    """Lines with `node` as their first field are limited by what they say of it."""
    desk = Desk()
    conditions = ConditionLog(desk.log)
    for number in range(2 * MAX_BURST):
        fields = {"node": "n1", "reason": str(number)}
        conditions.update("a", [Condition(begin, "well again", fields)])
    assert len(desk.lines()) == MAX_BURST
    fault = Condition("cables not verified", "cables verified again", fields)
    conditions.update("b", [fault])
    desk.log.warning("node request failed", node="n1", status=503)
    assert desk.lines() == [
        "warning cables not verified node=n1 reason=9",
        "warning node request failed node=n1 status=503",
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=200))
def test_every_subject_is_bounded_and_complete(steps: list[tuple[int, float]]) -> None:
    """Over any history: no more lines than the rate, and the last value in the end."""
    desk, values = Desk("json"), dict.fromkeys("0123", 0)
    for subject, pause in steps:
        desk.now += pause
        desk.log.release_due()
        values[str(subject)] += 1
        desk.change(str(subject), values[str(subject)] - 1, values[str(subject)])
    share = MAX_BURST + 1 + desk.now / LINE_INTERVAL
    desk.now += LINE_INTERVAL
    assert desk.log.release_due() == math.inf
    lines = [json.loads(data) for data in desk.written]
    for key, value in values.items():
        mine = [line for line in lines if line["key"] == key]
        assert len(mine) <= share
        assert sum(1 + line.get("skipped", 0) for line in mine) == value
        assert not mine or mine[-1]["to"] == str(value)


def test_subjects_are_forgotten() -> None:
    """The number of subjects is bounded; the kept line of a forgotten one is written."""
    desk = Desk()
    for number in range(MAX_BURST + 1):
        desk.change("first", number, number + 1)
    assert len(desk.lines()) == MAX_BURST
    for number in range(2 * MAX_SUBJECTS):
        desk.log.info("frame dropped", netdev=f"eth{number}")
    lines = desk.lines()
    assert f"info label changed key=first from={MAX_BURST} to={MAX_BURST + 1}" in lines
    assert len(lines) == 2 * MAX_SUBJECTS + 1
    assert desk.log.release_due() == math.inf


def test_kept_lines_are_written_at_exit(repository: Path) -> None:
    """The log of an agent that is stopped ends with the current state."""
    done = run(
        repository,
        "for number in range(9): log.info('label changed', key='x', to=str(number))",
        subprocess.PIPE,
    )
    lines = done.stderr.decode().splitlines()
    assert len(lines) == MAX_BURST + 1
    assert lines[-1].endswith("label changed key=x to=8 skipped=3")


def test_lost_lines_are_counted() -> None:
    desk = Desk()
    desk.full = True
    for name in "abc":
        desk.log.info("lost", name=name)
    desk.full = False
    desk.log.info("written", name="d")
    assert desk.lines() == ["warning log lines lost count=3", "info written name=d"]
    desk.log.info("written", name="e")
    assert desk.lines() == ["info written name=e"]


def run(repository: Path, code: str, stderr: int) -> subprocess.CompletedProcess[bytes]:
    """Run code with a log in a process of its own, since it is about descriptor 2."""
    head = f"import sys, os; sys.path.insert(0, {str(repository)!r})\n"
    log = "from agent.telemetry.log import Log, write_stderr\nlog = Log()\n"
    return subprocess.run(
        [sys.executable, "-c", head + log + code],
        stdout=subprocess.PIPE,
        stderr=stderr,
        timeout=60,
        check=False,
    )


def test_a_full_pipe_blocks_nothing(repository: Path) -> None:
    """Lines beyond the pipe's capacity are dropped at once; every line that arrives is whole."""
    reading, writing = os.pipe()
    code = "for number in range(5000): log.info('x' * 150, n=number)\nprint(log.lines.lost)"
    done = run(repository, code, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        lines = pipe.read().splitlines()
    assert done.returncode == 0
    assert len(lines) + int(done.stdout) == 5000
    assert all(re.search(rb" info x{150} n=\d+$", line) for line in lines)


@pytest.mark.parametrize("closed", [True, False])
def test_no_reader_is_no_error(repository: Path, *, closed: bool) -> None:
    """Standard error is closed from the start, or its reader is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    code = f"{'os.close(2)' if closed else ''}\nprint(write_stderr(b'x'))"
    done = run(repository, code, writing)
    os.close(writing)
    assert (done.returncode, done.stdout) == (0, b"False\n")


def test_standard_error_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    assert write_stderr(b"line\n")
    assert capfd.readouterr().err == "line\n"
