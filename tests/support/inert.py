"""While tests are collected, no process starts and no connection is opened: tests/conftest.py has
the hook, so a module that does more than define tests cannot be collected.

That the collection has one order is seen by xdist, which compares those of its workers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

FORBIDDEN = {
    *("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"),
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "pty.spawn"),
}
_is_collecting = [False]


def _refuse(event: str, _arguments: object) -> None:
    if _is_collecting[0] and event in FORBIDDEN:
        raise PermissionError(f"{event} while tests are collected")


@contextmanager
def collecting() -> Iterator[None]:
    """Refuse them within the block."""
    _is_collecting[0] = True
    try:
        yield
    finally:
        _is_collecting[0] = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect so."""
    with collecting():
        return (yield)


sys.addaudithook(_refuse)
