"""`bwagent` with what the image has: without the library of the extra `zstd`, which is there where
the tests run. urllib3 would load it: 0.4 MB.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command line as tests/support/quick.py does."""
    sys.modules["backports.zstd"] = None  # type: ignore[assignment]  # an import of it fails
    from agent.cli import cli
    from agent.exits import run_and_exit

    run_and_exit(cli, {"min_interval": 0.0, "resync": 1.0})


if __name__ == "__main__":
    main()
