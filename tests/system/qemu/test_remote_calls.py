"""The connection to a program in the machine, with a program outside of any machine."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.qemu.machine import Machine, MachineError, Result
from tests.support.qemu.remote_calls import PORT, Desk, OrderError, serve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Node:
    """A node with commands."""

    def add(self, one: int, other: int) -> int:
        return one + other

    def leave(self) -> None:
        raise SystemExit


@dataclass(frozen=True, slots=True)
class Pretended(Machine):
    """A machine whose program runs outside, and ends with this status; without a program if
    it is None.
    """

    status: int | None = 0

    def run(
        self, script: str, *, timeout: float = 300, env: Mapping[str, str] | None = None
    ) -> Result:
        assert timeout > 0
        if self.status is None:
            raise MachineError("it did not boot")
        with socket.create_connection(("127.0.0.1", int((env or {})[PORT]))) as connection:
            try:
                serve(connection, Node())
            except SystemExit:
                return Result(3, script)
        return Result(self.status, script)


def desk(folder: Path, status: int | None = 0) -> Desk:
    return Desk(Pretended(folder, status=status), "the program", {}, timeout=60)


def test_an_order_returns_what_was_done(tmp_path: Path) -> None:
    """Commands run one after the other, over one connection."""
    with desk(tmp_path) as wire:
        assert [wire.order("add", 1, 2), wire.order("add", 3, 4)] == [3, 7]


@pytest.mark.parametrize("order", [("add", "1"), ("subtract", "1", "2")])
def test_an_order_that_fails_says_why(tmp_path: Path, order: tuple[str, ...]) -> None:
    """It raises the traceback of the other end; the next one runs all the same."""
    with desk(tmp_path) as wire:
        with pytest.raises(OrderError, match="Traceback"):
            wire.order(*order)
        assert wire.order("add", 1, 2) == 3


def test_a_program_that_ends_is_no_answer(tmp_path: Path) -> None:
    """A command without an answer fails, with the output of the machine."""
    with pytest.raises(OrderError, match=r"leave.*rc=3"), desk(tmp_path) as wire:
        wire.order("leave")


def test_a_program_that_fails_in_the_end_is_told(tmp_path: Path) -> None:
    """It is reported even if every command succeeded."""
    with pytest.raises(OrderError, match="the program"), desk(tmp_path, status=1) as wire:
        wire.order("add", 1, 2)


def test_a_machine_that_does_not_boot_is_the_failure(tmp_path: Path) -> None:
    """It is reported without waiting for the program's connection."""
    with pytest.raises(MachineError, match="it did not boot"), desk(tmp_path, status=None):
        pass
