"""Load of the agents' questions on a subnet manager: `python -m benchmarks.subnet_manager [HCAS]`,
from the repository.

opensm on ibsim, a fabric of leaves with 32 HCAs each below one spine, and one client that asks the
subnet administrator as the agent does, without pause, for 20 s a kind of question: for the far end
of its port (two questions), and with --tiers for the links of a leaf, all switches, and the CAs
inside them. CPU is that of opensm, from /proc, by question. "Answers a second" is what one client
gets: it holds for an idle machine only.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.support.fabric import MANAGERS, Fabric, missing

LEAF = 32  # HCAs of a leaf
MOST = 254 * LEAF  # ports of a switch: NumPorts has 8 bits (IBTA vol. 1, 14.2.5.3)
SECONDS = 20
CLIENT = """
import sys, time
from agent.infiniband import sa
from agent.infiniband.devices import SubnetPort
from agent.infiniband.query import SaQueries, query_sa
from agent.infiniband.smp import PortUnavailable
from agent.infiniband.umad import opener
open_port, kind = opener(), sys.argv[4]
lid, sm_lid, answered, lost = *map(int, sys.argv[1:3]), 0, 0
end = time.monotonic() + float(sys.argv[3])
port, queries = SubnetPort("ibsim0", 1, lid, sm_lid, 0, 0), SaQueries(open_port, 2000)
if kind == "links":
    [query] = query_sa(open_port, [port], 2000)
    link = sa.links(query.exchanges[0].reply, query.exchanges[0].request)[0]
requests = {
    "links": lambda: sa.get_table(sa.RecordType.LINK_RECORD, 1, link.to_lid),
    "switches": lambda: sa.get_switches(1),
    "inside": lambda: sa.get_aggregation_nodes(1),
}
while time.monotonic() < end:
    if kind == "far end":
        [query] = query_sa(open_port, [port], 2000)
        answered += sum(one.reply is not None for one in query.exchanges)
        lost += query.error is not None
        continue
    try:
        queries.ask(port, requests[kind](), end + 2)
        answered += 1
    except PortUnavailable:
        lost += 1
print(answered, lost)
"""
KINDS = "far end", "links", "switches", "inside"


def netlist(hcas: int) -> str:
    """Return a fabric of leaves below one spine."""
    leaves = -(-hcas // LEAF)
    blocks = [[f'Switch {leaves} "spine"', *(f'[{n}] "leaf{n}"[33]' for n in range(1, leaves + 1))]]
    for leaf in range(1, leaves + 1):
        ports = range(1, min(LEAF, hcas - LEAF * (leaf - 1)) + 1)
        cables = (f'[{port}] "node{leaf}-{port}"[1]' for port in ports)
        blocks.append([f'Switch 33 "leaf{leaf}"', *cables, f'[33] "spine"[{leaf}]'])
        blocks += ([f'Hca 1 "node{leaf}-{port}"', f'[1] "leaf{leaf}"[{port}]'] for port in ports)
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process: utime and stime of proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(hcas: int) -> int:
    """Print the row of a subnet with that many HCAs; return 1 if a question was not answered."""
    if not LEAF <= hcas <= MOST:
        raise SystemExit(f"{hcas}: not {LEAF} to {MOST:,} HCAs, which one spine connects")
    if reason := missing(*MANAGERS):
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        limits = ("-N", str(2 * hcas + 64), "-S", str(hcas // LEAF + 64), "-P", str(4 * hcas + 999))
        with (
            Fabric(netlist(hcas), folder, *limits) as fabric,
            fabric.manager("node1-1", "-r") as opensm,
        ):
            fabric.boot("node1-2", folder / "sys")
            port = folder / "sys/class/infiniband/ibsim0/ports/1"
            lids = [str(int((port / one).read_text(), 0)) for one in ("lid", "sm_lid")]
            python = "env", f"PYTHONPATH={Path.cwd()}", sys.executable
            all_lost = 0
            for kind in KINDS:
                before = cpu(opensm)
                said = fabric.run("node1-2", *python, "-c", CLIENT, *lids, str(SECONDS), kind)
                spent = cpu(opensm) - before
                answered, lost = map(int, said.split())
                all_lost += lost
                print(
                    f"{hcas} HCAs, {kind}: opensm {1000 * spent / answered:.2f} ms of CPU"
                    f" a question, {answered / SECONDS:.0f} answers a second, {lost} lost"
                )
    return int(all_lost > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 640))
