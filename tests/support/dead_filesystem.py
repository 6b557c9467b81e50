"""A filesystem that never answers, as that of an NFS server that is gone: who looks for a file
there cannot be killed.

It is a FUSE mount (include/uapi/linux/fuse.h) whose daemon answers the first request, without which
the kernel does not begin, and takes the next one in silence. A process sleeps uninterruptibly once
its request was taken. When the daemon is gone the kernel ends the connection, and with it
everybody's wait; so it is a process, and lives for LIFE at most, whatever becomes of the test.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICE = Path("/dev/fuse")
LIFE = 120  # seconds
LONGEST_REQUEST = 1 << 17
MNT_DETACH = 2  # include/linux/fs.h
_HEADER = struct.Struct(
    "=IIQ"
)  # struct fuse_in_header: length, opcode, unique; and what nobody needs here
_ANSWER = struct.Struct("=IiQ")  # struct fuse_out_header: length, error, unique
_INIT = struct.Struct(
    "=IIIIHHIIHHI28x"
)  # struct fuse_init_out: major, minor, readahead, flags, ..., max_write, ...


def missing() -> str | None:
    """Why there can be none here."""
    return (
        None if os.geteuid() == 0 and DEVICE.exists() else "a FUSE mount needs root and /dev/fuse"
    )


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """The folder, where whoever looks for anything within the block waits for its end: leave that
    to others.
    """
    folder.mkdir()
    command = [
        sys.executable,
        "-c",
        "from tests.support.dead_filesystem import serve; serve()",
        str(folder),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout
        try:
            assert daemon.stdout.readline() == b"mounted\n"
            yield folder
        finally:
            daemon.kill()
            ctypes.CDLL(None).umount2(os.fsencode(folder), MNT_DETACH)


def serve() -> None:
    """Be the daemon, until the parent closes standard input."""
    signal.alarm(LIFE)
    fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    if ctypes.CDLL(None).mount(b"dead", os.fsencode(sys.argv[1]), b"fuse", 0, options.encode()):
        sys.exit("mount failed")
    _, _, unique = _HEADER.unpack_from(os.read(fd, LONGEST_REQUEST))
    began = _INIT.pack(7, 31, 4096, 0, 1, 1, 4096, 1, 0, 0, 0)
    os.write(fd, _ANSWER.pack(_ANSWER.size + len(began), 0, unique) + began)
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    poll = select.poll()
    for one in (fd, 0):
        poll.register(one, select.POLLIN)
    while 0 not in dict(poll.poll()):
        os.read(fd, LONGEST_REQUEST)
