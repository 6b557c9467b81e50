"""An open umad device that a test answers."""

from __future__ import annotations

import os
from collections.abc import Callable


class AnsweringPort:
    """A UmadPort: `answer` returns the reply to a request, None for none, or raises."""

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        self._answer, self._event = answer, os.eventfd(0)
        self._reply: bytes | None = None

    def fileno(self) -> int:
        return self._event

    def send(self, request: bytes, _timeout_ms: int) -> None:
        self._reply = self._answer(request)
        if self._reply is not None:
            os.eventfd_write(self._event, 1)

    def receive(self, _request: bytes) -> bytes | None:
        os.eventfd_read(self._event)
        return self._reply

    def close(self) -> None:
        os.close(self._event)
