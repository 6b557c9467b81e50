"""Remote calls to a program in the emulated machine: the test outside sends a command, and gets its
result.

    test, outside                                            program, inside
    with Desk(machine, "python -m ...") as desk:  --boot-->  obey(node)
        desk.order("pull", "leaf-1", "swp1")      ["pull", "leaf-1", "swp1"]
                                                  {"value": node.pull("leaf-1", "swp1")}

A line of JSON each way, over the user network of the machine (USER_NETWORK). A command that fails
inside raises outside, with the traceback; so does one that the machine crashes under.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import IO, Any, Self

from tests.support.qemu.machine import Machine, MachineError, Result

HOST, PORT = (
    "10.0.2.2",
    "ORDERS_PORT",
)  # the host's loopback as seen inside; the variable with the port
PATIENCE = 240.0  # seconds that one order may take, and what comes up in a boot before the first


class OrderError(Exception):
    """A command failed."""


class Desk:
    """A machine that runs a program, and the connection to it; within the block the program takes
    commands.
    """

    def __init__(
        self, machine: Machine, command: str, env: Mapping[str, str], *, timeout: float
    ) -> None:
        self._machine, self._command, self._env, self._timeout = machine, command, env, timeout
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            env = {**self._env, PORT: str(listener.getsockname()[1])}
            # QEMU ends with the thread that started it, and that one when the program has hung up.
            thread = stack.enter_context(ThreadPoolExecutor(1))
            self._end = thread.submit(
                self._machine.run, self._command, env=env, timeout=self._timeout
            )
            connection = stack.enter_context(
                _accept(listener, self._end, self._machine.boot_limit + PATIENCE)
            )
            connection.settimeout(PATIENCE)
            self._wire = stack.enter_context(connection.makefile("rw"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the connection, and wait until the machine is off; raise with the program's output
        if it failed.
        """
        self._stack.close()
        result = self._end.result()
        if kind is None and result.rc:
            raise OrderError(result.output)

    def order(self, verb: str, *arguments: object) -> Any:
        """Run a command inside; return its result."""
        try:
            _say(self._wire, [verb, *arguments])
            line = self._wire.readline()
        except OSError as error:
            raise OrderError(f"{verb} {arguments}: {error}") from error
        if not line:
            raise OrderError(f"{verb} {arguments}: the program has ended: {self._end.result()}")
        answer = json.loads(line)
        if "error" in answer:
            raise OrderError(f"{verb} {arguments}:\n{answer['error']}")
        return answer["value"]


def obey(node: object) -> None:
    """Inside the machine: run commands, each a method of the node, until the connection is
    closed.
    """
    for command in ("link set eth0 up", "address add 10.0.2.15/24 dev eth0"):
        subprocess.run(["ip", *command.split()], check=True)
    with socket.create_connection((HOST, int(os.environ[PORT])), timeout=PATIENCE) as connection:
        serve(connection, node)


def serve(connection: socket.socket, node: object) -> None:
    """Run the commands of this connection until it is closed."""
    connection.settimeout(None)
    with connection.makefile("rw") as wire:
        for line in wire:
            verb, *arguments = json.loads(line)
            _say(wire, _done(node, verb, arguments))


def _done(node: object, verb: str, arguments: list[Any]) -> dict[str, Any]:
    try:
        return {"value": getattr(node, verb)(*arguments)}
    except Exception:  # noqa: BLE001 - whatever it was, it is for those outside to know
        return {"error": traceback.format_exc()}


def _say(wire: IO[str], what: object) -> None:
    wire.write(json.dumps(what) + "\n")
    wire.flush()


def _accept(listener: socket.socket, end: Future[Result], patience: float) -> socket.socket:
    """Accept the program's connection; raise the machine's error if it went down instead."""
    end.add_done_callback(lambda _: listener.shutdown(socket.SHUT_RDWR))
    listener.settimeout(patience)
    try:
        return listener.accept()[0]
    except OSError as error:
        why = end.result() if end.done() else error
        raise MachineError(f"nobody in the machine takes orders: {why}") from error
