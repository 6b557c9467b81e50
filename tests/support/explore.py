"""Explore over ibsim: `python -m tests.support.explore SM-LID LAST-LID LEAF-GUID`, in ibsim-run.

ibsim cuts an answer after 256 octets, so the tables of NodeRecords are joined here of those of each
LID; the LinkRecords are as they come.
"""

from __future__ import annotations

import json
import sys
import time

from agent.infiniband import sa
from agent.infiniband.devices import SubnetPort
from agent.infiniband.exploration import explore
from agent.infiniband.query import SaQueries
from agent.infiniband.umad import Umad

TIMEOUT_MS = 5000


def main(sm_lid: int, last_lid: int, leaf: str) -> None:
    """Write the tiers above a leaf."""
    queries = SaQueries(Umad().open, TIMEOUT_MS)
    end = time.monotonic() + 60

    def ask(port: SubnetPort, request: bytes) -> bytes:
        reply = queries.ask(port, request, end)
        if sa.require_get_table(request)[0]:
            return reply
        first = next(sa.decode(reply[: 56 + 112], request), None)
        records: list[bytes] = []
        for lid in range(1, last_lid + 1):
            by_lid = sa.get_table(sa.RecordType.NODE_RECORD, 1000 + lid, lid)
            records += list(sa.decode(queries.ask(port, by_lid, end), by_lid))
        of, to = (6, 7) if request[62] else (34, 36)  # NodeType, DeviceID
        wanted = [record for record in records if record[of:to] == request[56 + of : 56 + to]]
        assert first in wanted if wanted else first is None
        return sa.encode(request, wanted)

    tiers, faults, *_ = explore([(SubnetPort("ibsim0", 1, 1, sm_lid, 0, 0), leaf)], ask, 1)
    names = [tiers.names.get(guid, guid) for guid in tiers.tier_1]
    sys.stdout.write(json.dumps([names, tiers.label(2), tiers.reason, faults, tiers.uplinks[leaf]]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
