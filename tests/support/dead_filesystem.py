"""A filesystem that never answers, as of an NFS server that is gone: a process that looks up a file
on it sleeps uninterruptibly.

It is a FUSE mount (include/uapi/linux/fuse.h) whose daemon answers FUSE_INIT and reads, but never
answers, the requests that follow. When the daemon ends, the kernel closes the connection and every
wait returns; so the daemon is a process of its own, and ends after MAX_LIFETIME even if the test
was killed.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEVICE = Path("/dev/fuse")
MAX_LIFETIME = 120  # seconds
MAX_REQUEST = 1 << 17  # bytes
MNT_DETACH = 2  # include/linux/fs.h
# struct fuse_in_header: length, opcode, unique; the rest is not used here
_HEADER = struct.Struct("=IIQ")
# struct fuse_out_header: length, error, unique
_ANSWER = struct.Struct("=IiQ")
# struct fuse_init_out: major, minor, readahead, flags, ..., max_write, ...
_INIT = struct.Struct("=IIIIHHIIHHI28x")


def missing() -> str | None:
    """Return the reason why a FUSE mount is not possible here; None if it is."""
    return (
        None if os.geteuid() == 0 and DEVICE.exists() else "a FUSE mount needs root and /dev/fuse"
    )


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """Mount the filesystem on a new folder. Within the block only threads and processes that may
    block should look up a file there.
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
    """Run the daemon until the parent closes standard input."""
    signal.alarm(MAX_LIFETIME)
    fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    if ctypes.CDLL(None).mount(b"dead", os.fsencode(sys.argv[1]), b"fuse", 0, options.encode()):
        sys.exit("mount failed")
    _, _, unique = _HEADER.unpack_from(os.read(fd, MAX_REQUEST))
    began = _INIT.pack(7, 31, 4096, 0, 1, 1, 4096, 1, 0, 0, 0)
    os.write(fd, _ANSWER.pack(_ANSWER.size + len(began), 0, unique) + began)
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    poll = select.poll()
    for one in (fd, 0):
        poll.register(one, select.POLLIN)
    while 0 not in dict(poll.poll()):
        os.read(fd, MAX_REQUEST)
