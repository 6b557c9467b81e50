"""The cost of `run --plan`: `python -m benchmarks.plan_file [--minutes 5]`, from the repository.

Four agents on one API server, side by side in the same minutes, with a Node and the same 8
InfiniBand HCAs each: without an expected half, with expected labels on the Node, with a plan of
1 MiB in which 8 rows are the node's, and with one that is written anew every minute. The last three
compare their cables. Memory is that of an idle agent, as benchmarks/idle.py takes it. Of the
helper: the CPU time and the peak of one reading. Exits 1 if a plan takes a megabyte more than the
same 8 rows as labels.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import cost
from benchmarks.idle import settled
from tests.support.kernel_tree import NET, Entries, hca
from tests.support.kube.cluster import Cluster
from tests.support.kube.programs import missing
from tests.support.kube.resident import Agent

MB = 1024  # KiB
MOST_MB = 1.0
SIZE = 1 << 20  # bytes
RAILS = 8
WITHOUT, LABELS = "no expected half", "expected labels"
WITH, CHANGING = "with a plan", "a new plan a minute"
NEIGHBOR = "backend.coreweave.cloud/neighbors.expected"
TREE: Entries = {f"{NET}/lo": None}
for rail in range(RAILS):
    TREE |= hca(f"ibp{rail}", f"0000:{0x18 + rail:02x}:00.0")


def plan(node: str) -> str:
    """Return a plan of 1 MiB with 8 rows of the node."""
    text = "node,interface,device,port-id,port-name\n"
    text += "".join(f"{node},ibp{rail},leaf-{rail},1,\n" for rail in range(RAILS))
    for number in range(SIZE):
        rows = (f"gpu-{number:05},ibp{rail},leaf-{number // 32 * 8 + rail},{number % 32 + 1},\n"
                for rail in range(RAILS))  # fmt: skip
        more = "".join(rows)
        if len(text) + len(more) > SIZE:
            break
        text += more
    return text


def reading(path: Path) -> tuple[float, float]:
    """Return CPU seconds and MB of a helper that reads the plan once."""
    code = (
        "from agent.helper.process import call\n"
        f"call('plan', {{'files': [{str(path)!r}], 'names': ['with-a-plan'],"
        " 'prefixes': ['p', 'ib']}, 30.0)\n"
        "import resource; found = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(found.ru_utime + found.ru_stime, found.ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds, peak = map(float, done.stdout.split())
    return seconds, peak / MB


def main() -> int:
    """Run the agents; return 1 if the plan takes more than MOST_MB."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_file")
    parser.add_argument("--minutes", type=float, default=5.0)
    seconds = parser.parse_args().minutes * 60
    if reason := missing():
        raise SystemExit(reason)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plan-")))
        agents = started(stack, folder)
        before = {name: cost.cpu(one.process.pid) for name, one in agents.items()}
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            time.sleep(60)
            (folder / "changing.csv").write_text(plan(slug(CHANGING)))
        time.sleep(30)
        hours = (time.monotonic() - began) / 3600
        print(f"idle for {hours * 60:.1f} minutes; {cost.load()}")
        print(f"{'':22}{'RSS MB':>8}{'once':>8}{'CPU-s an hour':>15}")
        sizes = {}
        for name, one in agents.items():
            rss, sizes[name] = settled(one.process.pid)
            spent = (cost.cpu(one.process.pid) - before[name]) / hours
            print(f"{name:22}{rss / MB:8.1f}{sizes[name] / MB:8.1f}{spent:15.2f}")
        spent, peak = reading(folder / "plan.csv")
        print(f"one reading of {(folder / 'plan.csv').stat().st_size} bytes: "
              f"{spent:.2f} CPU-s, {peak:.0f} MB at most")  # fmt: skip
    more = max(sizes[WITH], sizes[CHANGING]) - sizes[LABELS]
    print(f"a plan takes {more / MB:.2f} MB of the agent, "
          f"comparing {(sizes[LABELS] - sizes[WITHOUT]) / MB:.2f}")  # fmt: skip
    return int(more / MB > MOST_MB)


def expected() -> dict[str, str]:
    """Return the 8 rows as labels."""
    rows = [(f"{NEIGHBOR}.ibp{rail}", f"leaf-{rail}") for rail in range(RAILS)]
    devices = {f"{key}.device": leaf for key, leaf in rows}
    return devices | {f"{key}.port-id": "1" for key, _ in rows}


def started(stack: ExitStack, folder: Path) -> dict[str, Agent]:
    """Run the agents until they have applied their labels and read their plans."""
    cluster = stack.enter_context(Cluster())
    files = {WITH: folder / "plan.csv", CHANGING: folder / "changing.csv"}
    found = {}
    for name in (WITHOUT, LABELS, WITH, CHANGING):
        node, place = slug(name), folder / slug(name)
        place.mkdir()
        cluster.node(node, labels=expected() if name == LABELS else {})
        flags = ["--source", "rdma", "--resync", "720h", "--port-interval", "2s"]
        flags += ["--verdict-delay", "1s"]
        if name in files:
            files[name].write_text(plan(node))
            flags += ["--plan", str(files[name])]
        found[name] = stack.enter_context(Agent(cluster, place, node, TREE, *flags))
    for name, one in found.items():
        one.speaks("3200G")
        if name in files:
            one.says(f"rows={RAILS}")
    time.sleep(20)  # until the first verdict is in the annotation
    return found


def slug(name: str) -> str:
    """Return the Node of an agent."""
    return name.replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())
