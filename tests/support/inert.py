"""A pytest plugin that forbids processes and the network while tests are collected."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

FORBIDDEN = {
    *("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"),
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "pty.spawn"),
}
_is_collecting = [False]


def _refuse(event: str, _arguments: object) -> None:
    if _is_collecting[0] and event in FORBIDDEN:
        raise PermissionError(f"{event} while tests are collected")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect with the hook in force."""
    _is_collecting[0] = True
    try:
        return (yield)
    finally:
        _is_collecting[0] = False


sys.addaudithook(_refuse)
