"""The requests of one port and their tries, over a port of the test."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from agent.infiniband import smp
from agent.infiniband.query import PortQuery, query_ports
from agent.infiniband.smp import Attribute, PortUnavailable
from agent.infiniband.umad import TIMEOUT_SLACK
from agent.reasons import NeighborReason
from tests.support.smps import node_info, reply
from tests.support.umad_ports import AnsweringPort

TIMEOUT_MS = 30
INFO, DESCRIPTION = (
    smp.get(attribute, tid, 1)
    for attribute, tid in ((Attribute.NODE_INFO, 1), (Attribute.NODE_DESCRIPTION, 2))
)
ANSWERS = {INFO: reply(INFO, node_info()), DESCRIPTION: reply(DESCRIPTION, b"leaf1")}
BUSY = reply(DESCRIPTION, b"", 0x8001)


class ScriptedPort(AnsweringPort):
    """A port that answers the NodeDescription as scripted: a reply, None for none, or an error."""

    def __init__(self, script: list[bytes | NeighborReason | None]) -> None:
        super().__init__(self.answer)
        self.script, self.sent = iter(script), list[tuple[float, bytes]]()

    def answer(self, request: bytes) -> bytes | None:
        self.sent.append((time.monotonic(), request))
        found = ANSWERS[INFO] if request == INFO else next(self.script)
        if isinstance(found, NeighborReason):
            raise PortUnavailable(found, "it is scripted")
        return found


def asked(script: list[bytes | NeighborReason | None]) -> tuple[PortQuery, ScriptedPort]:
    port = ScriptedPort(script)
    [query] = query_ports(lambda _device, _number: port, [("ibp0", 1)], TIMEOUT_MS, 2)
    return query, port


def gaps(port: ScriptedPort) -> Iterator[float]:
    """Yield the seconds between the requests for the NodeDescription."""
    times = [at for at, request in port.sent if request == DESCRIPTION]
    yield from (after - before for before, after in itertools.pairwise(times))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "sent", "name"),
    [
        ([ANSWERS[DESCRIPTION]], 1, "leaf1"),
        ([None, ANSWERS[DESCRIPTION]], 2, "leaf1"),
        ([BUSY, ANSWERS[DESCRIPTION]], 2, "leaf1"),
        ([BUSY, None, ANSWERS[DESCRIPTION]], 3, "leaf1"),
        ([None, None, None], 3, None),
        ([BUSY, BUSY, BUSY], 3, None),
        ([NeighborReason.SEND_FAILED] * 3, 3, None),
    ],
)
def test_a_description_has_three_tries(
    script: list[bytes | NeighborReason | None], sent: int, name: str | None
) -> None:
    """Each is sent when the time of the one before is over, whether that was refused or lost; the
    neighbor is known by NodeInfo, and one exchange has the last result.
    """
    query, port = asked(script)
    assert [request for _, request in port.sent] == [INFO, *[DESCRIPTION] * sent]
    assert all(gap >= TIMEOUT_MS / 1000 + TIMEOUT_SLACK for gap in gaps(port))
    assert [exchange.request for exchange in query.exchanges] == [INFO, DESCRIPTION]
    assert query.error is None
    assert smp.replay(query.exchanges).node_description == name
