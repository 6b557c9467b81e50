"""Snapshots made by hand, and the program run as a user runs it.

A snapshot is a mapping, path -> bytes of a file, text of a link, None of a folder: it becomes a
folder or a tar.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from agent.encode import Naming
from agent.model import Observation
from agent.output.document import Choices, document
from agent.snapshot.capture import Record, entries, record
from agent.snapshot.replay import replay
from agent.snapshot.tree import Contents
from agent.sources.observe import observe
from tests.support import forked, machines
from tests.support.machines import FOLDERS
from tests.support.remembering import alone

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

Snapshot = dict[str, bytes | str | None]
Member = tuple[tarfile.TarInfo, bytes]
Finished = subprocess.CompletedProcess[bytes]

REPOSITORY = Path(__file__).parents[2]
FIXTURES = REPOSITORY / "sysfs_fixtures"
MACHINES = [pytest.param(one.id, id=one.id, marks=one.marks) for one in FOLDERS]
CLASS = "sys/class/infiniband"
FUNCTION = "sys/devices/pci0000:16/0000:18:00.0"
DEVICE = f"{FUNCTION}/infiniband/ibp0"
# Bytes of address space, of which the program alone needs 60 MiB; seconds.
LIMITS = {"memory": 400 << 20, "timeout": 60}

PORT: Snapshot = {
    "link_layer": b"InfiniBand\n",
    "state": b"4: ACTIVE\n",
    "phys_state": b"5: LinkUp\n",
    "rate": b"400 Gb/sec (4X NDR)\n",
    "has_smi": b"1\n",
    "gids/0": b"fe80:0000:0000:0000:a088:c203:00ab:cdf0\n",
}
BARE: Snapshot = {f"ibp0/ports/1/{name}": data for name, data in PORT.items()} | {
    "ibp0/node_type": b"1: CA\n",
    "ibp0/node_guid": b"a088:c203:00ab:cdef\n",
    "ibp0/hca_type": b"MT4129\n",
}
SMALL: Snapshot = {f"{FUNCTION}/infiniband/{path}": data for path, data in BARE.items()} | {
    f"{CLASS}/ibp0": "../../devices/pci0000:16/0000:18:00.0/infiniband/ibp0",
    f"{DEVICE}/device": "../../../0000:18:00.0",
    f"{FUNCTION}/numa_node": b"0\n",
    "sys/class/net/lo/speed": b"\n",
    "proc/sys/kernel/random/boot_id": b"09c0d450-a817-5b41-bda4-395f8521fcaf\n",
    "meta.json": b'{"schema": 1, "time": "2026-05-04T10:00:00Z"}\n',
    "host.json": b'{"hostname": "node-17"}\n',
}
SPEED = "backend.coreweave.cloud/speed.current"


# A limit on file sizes would leave truncated bytecode behind, for everybody after.
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}


def lay(folder: Path, snapshot: Mapping[str, bytes | str | None]) -> str:
    """Write a snapshot as a folder; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in snapshot.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            place.mkdir(exist_ok=True)
        elif isinstance(content, str):
            place.symlink_to(content)
        else:
            place.write_bytes(content)
    return str(folder)


def member(name: str, content: bytes | str | None = b"", **header: Any) -> Member:
    """A member of a tar; `header` sets fields of its TarInfo, true or not."""
    info, data = tarfile.TarInfo(name), content if isinstance(content, bytes) else b""
    info.size = len(data)
    if not isinstance(content, bytes):
        info.type = tarfile.DIRTYPE if content is None else tarfile.SYMTYPE
        info.linkname = content or ""
    for key, value in header.items():
        setattr(info, key, value)
    return info, data


def members(snapshot: Mapping[str, bytes | str | None], top: str = "") -> list[Member]:
    """A snapshot as members, in a folder where `top` names one."""
    return [member(f"{top}{path}", content) for path, content in snapshot.items()]


def tar(path: Path, content: Iterable[Member], form: Literal[0, 1, 2] = tarfile.PAX_FORMAT) -> str:
    """Write a tar of members, whatever they are; its path."""
    with path.open("wb") as file:
        for info, data in content:
            file.write(info.tobuf(form) + data + bytes(-len(data) % tarfile.BLOCKSIZE))
        file.write(bytes(2 * tarfile.BLOCKSIZE))
    return str(path)


def compressed(data: bytes, form: str) -> bytes:
    """Compress data with gzip or zstd."""
    if form == "gz":
        import gzip

        return gzip.compress(data, mtime=0)
    from backports import zstd

    return zstd.compress(
        data, options={zstd.CompressionParameter.checksum_flag: 1}
    )  # as the zstd program does


def packed(snapshot: Mapping[str, bytes | str | None]) -> bytes:
    """A snapshot as the bytes of a tar made by tarfile."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info, data in members(snapshot):
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def some(*names: str) -> list[ParameterSet]:
    """The machines of these names; the others are for the sweep."""
    return [
        pytest.param(one.name, id=one.name, marks=() if one.name in names else pytest.mark.sweep)
        for one in machines.MACHINES
    ]


@cache
def captured(machine: str) -> tuple[Record, Observation]:
    """The capture of a machine folder, which no test changes."""
    return record(replay(str(FIXTURES / machine)))


@cache
def contents(machine: str) -> Contents:
    """The files, links and folders of that capture."""
    return entries(captured(machine)[0])


@cache
def told(machine: str) -> str:
    """The report on a machine folder as JSON."""
    return text(str(FIXTURES / machine))


def report(snapshot: str, excluded: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the report on a snapshot, made in this process, without the problem of a
    missing PCI bus.
    """
    found = document(*alone(observe(replay(snapshot, excluded))), Choices((), excluded, Naming()))
    return found | {
        "problems": [problem for problem in found["problems"] if problem["source"] != "nvml"]
    }


def text(snapshot: str, excluded: tuple[str, ...] = ()) -> str:
    """The report on a snapshot as JSON."""
    return json.dumps(report(snapshot, excluded), indent=2)


def bwagent(*arguments: str, **options: Any) -> Finished:
    """Run the program as `started` does, from a process that has imported it."""
    environment = _environment(options.pop("env", {}))
    return forked.run(arguments, environment, **{**LIMITS, **options})


def started(*arguments: str, **options: Any) -> Finished:
    """Run the program from its start with limits of time and memory, so that a decompression bomb
    fails the test.
    """
    environment = _environment(options.pop("env", {}))
    program = [sys.executable, "-m", "agent.cli", *arguments]
    limited = ["sh", "-c", f'ulimit -v {LIMITS["memory"] >> 10}; exec "$@"', "sh", *program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options = {**pipes, "timeout": LIMITS["timeout"], **options}
    return subprocess.run(limited, env=environment, check=False, **options)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what the one who runs the tests may have set."""
    path = os.environ["PATH"]
    return {"PATH": path, "PYTHONPATH": str(REPOSITORY), **NO_BYTECODE, **more}


def complaint(finished: Finished, code: int = 1) -> str:
    """Return the one line of standard error of a run that ended with `code` and printed nothing."""
    lines = finished.stderr.decode().splitlines()
    assert (finished.returncode, len(lines), finished.stdout or b"") == (code, 1, b""), finished
    assert lines[0].startswith("bwagent")
    return lines[0]
