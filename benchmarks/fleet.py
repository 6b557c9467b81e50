"""Cost of reading a fleet: `python -m benchmarks.fleet [NODES...]`, from the repository.

Files as `kubectl get nodes -o json` prints them, of 10,000 and 100,000 Nodes: 8 InfiniBand ports
each with labels under both prefixes, the annotation, and IMAGES images in the status. Each is read
in a process of its own: the medians of ROUNDS processes of CPU seconds (getrusage), and the peak of
resident memory with the interpreter. Beside it json.load of the smaller file alone. More than
LIMITS is a failure. `fleet verify` as a whole is beside them for the smallest file: by the pattern,
and by a plan with a row for each cable.

Then the pages of an API server (tests/support/kube/build.sh), with CROWD Nodes: CPU seconds of the
client and bytes of memory, as of a file.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.support.fleet_nodes import RAILS, UNIT, leaf, node, whole
from tests.support.kube.cluster import Cluster
from tests.support.kube.population import NODES, each
from tests.support.kube.programs import missing

ROUNDS = 3
IMAGES = 20
CROWD = 2000  # Nodes of the API server
LIMITS = {10_000: (2.5, 150.0), 100_000: (30.0, 1024.0)}  # CPU seconds, MB
OF_PLAN = (5.0, 300.0)  # of 10,000 Nodes, judged and printed
MEASURE = """
import json, sys, time
from resource import RUSAGE_SELF, getrusage
{work}
used = getrusage(RUSAGE_SELF)
with open("/proc/self/status") as status:  # not ru_maxrss: it has the peak of the parent
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
print(json.dumps([found, used.ru_utime + used.ru_stime, peak / 1024]))
"""
FILE = """
from agent.fleet.read import Selection, read_file
from agent.encode import Naming
fleet = read_file(sys.argv[1], Selection(Naming()), time.time())
assert not any(node.problems for node in fleet.nodes)
found = len(fleet.nodes)
"""
ALONE = """
with open(sys.argv[1]) as file:
    found = len(json.load(file)["items"])
"""
VERIFY = """
from contextlib import redirect_stdout
from io import StringIO
from agent.fleet.command import fleet
with redirect_stdout(StringIO()) as shown:
    fleet.main(["verify", "--nodes", *sys.argv[1].split()], standalone_mode=False)
found = int(shown.getvalue().split()[0].replace(",", ""))
"""
SERVER = """
from agent.fleet.read import Selection, read_cluster
from agent.kube.api import connect
from agent.encode import Naming
found = len(read_cluster(connect(sys.argv[1]), "", Selection(Naming()), time.time()).nodes)
"""


def write(file: IO[str], count: int) -> None:
    """Write a list of so many Nodes; their status is the same."""
    image = {"names": [f"registry.example.com/image@sha256:{0:064}"], "sizeBytes": 123456789}
    status = json.dumps({**whole(0)["status"], "images": [image] * IMAGES}, indent=4)
    file.write('{\n    "apiVersion": "v1",\n    "items": [')
    for number in range(count):
        metadata = json.dumps(node(number)["metadata"], indent=4)
        file.write(f'{"," * bool(number)}\n{{"kind": "Node", "metadata": {metadata},')
        file.write(f'"status": {status}}}')
    file.write('],\n    "kind": "List"\n}\n')


def write_plan(file: IO[str], count: int) -> None:
    """Write the plan of these Nodes."""
    file.write("node,interface,device,port-id,port-name\n")
    for number in range(count):
        name, port = node(number)["metadata"]["name"], number % UNIT + 1
        file.writelines(f"{name},ibp{rail},{leaf(number, rail)},{port},\n" for rail in range(RAILS))


def measure(work: str, argument: str, count: int) -> tuple[float, float]:
    """Return the medians of CPU seconds and MB."""
    costs = []
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", MEASURE.format(work=work), argument]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found, *cost = json.loads(done.stdout)
        if found != count:
            raise ValueError(f"{found} of {count} Nodes")
        costs.append(cost)
    cpu, memory = map(statistics.median, zip(*costs, strict=True))
    return cpu, memory


def show(title: str, cost: tuple[float, float]) -> None:
    """Print a line of the table."""
    print(f"{title:28}{cost[0]:8.2f}{cost[1]:8.0f}", flush=True)


def of_files(sizes: Sequence[int]) -> bool:
    """Measure files; return True if all are within their limits."""
    is_within = True
    for count in sizes:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            write(file, count)
            file.flush()
            megabytes = Path(file.name).stat().st_size >> 20
            cost = measure(FILE, file.name, count)
            show(f"{count:,} Nodes, {megabytes:,} MB", cost)
            if count == min(sizes):
                show("  json.load alone", measure(ALONE, file.name, count))
                is_within &= of_command(file.name, count)
        is_within &= is_below(cost, LIMITS.get(count, cost))
    return is_within


def is_below(cost: tuple[float, float], limits: tuple[float, float]) -> bool:
    """Return True if neither CPU seconds nor MB are above their limit."""
    return all(value <= limit for value, limit in zip(cost, limits, strict=True))


def of_command(nodes: str, count: int) -> bool:
    """Measure `fleet verify`; return True if it is within its limits with a plan."""
    show("  fleet verify, pattern", measure(VERIFY, nodes, count))
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as plan:
        write_plan(plan, count)
        plan.flush()
        cost = measure(VERIFY, f"{nodes} --plan {plan.name}", count)
    show(f"  fleet verify, {count * RAILS:,} rows", cost)
    return count > 10_000 or is_below(cost, OF_PLAN)


def of_server() -> None:
    """Measure the pages of an API server."""
    if reason := missing():
        print(f"no API server: {reason}")
        return
    with Cluster() as cluster:
        each(cluster, range(CROWD), lambda send, number: send("POST", NODES, node(number)))
        show(f"{CROWD:,} Nodes, API server", measure(SERVER, str(cluster.kubeconfig()), CROWD))


def main(sizes: Sequence[int]) -> int:
    """Print the table; return 1 if a file takes more than its limits."""
    print(f"{'':28}{'CPU s':>8}{'MB':>8}", flush=True)
    is_within = of_files(sizes)
    of_server()
    return int(not is_within)


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]] or sorted(LIMITS)))
