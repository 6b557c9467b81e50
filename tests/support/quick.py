"""`bwagent` with times of its own: `python -m tests.support.quick run --resync 1s`.

The program has lower bounds that keep the load on an API server low; a test has one of its own.
"""

from __future__ import annotations

from agent import memory
from agent.cli import cli
from agent.exits import run_and_exit

if __name__ == "__main__":
    memory.LONG = 0.0  # an HCA that falls off the bus is lost at once
    run_and_exit(cli, {"min_interval": 0.0, "resync": 1.0})
