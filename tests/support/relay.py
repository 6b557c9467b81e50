"""A TCP port of this host, reachable from a network namespace that has no way out.

The listening socket is created inside the namespace; its connections are forwarded from outside.
The relay forwards bytes, so TLS ends at the same peer as without it.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from tests.support.switch import Namespace

HERE = "127.0.0.1"


@contextmanager
def relayed(namespace: Namespace, port: int) -> Iterator[None]:
    """Forward 127.0.0.1:port of the namespace to 127.0.0.1:port of the host."""
    listener = namespace.call(socket.create_server, (HERE, port))
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(_relay(listener, port, stop),), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _relay(listener: socket.socket, port: int, stop: asyncio.Event) -> None:
    server = await asyncio.start_server(partial(_join, port), sock=listener)
    await stop.wait()
    server.close()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


async def _join(port: int, reader: StreamReader, writer: StreamWriter) -> None:
    far_reader, far_writer = await asyncio.open_connection(HERE, port)
    try:
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    finally:
        # A client keeps its connection, so it may be open when the relay ends.
        for one in (writer, far_writer):
            one.transport.abort()
            with suppress(OSError):
                await one.wait_closed()


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
