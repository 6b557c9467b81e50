"""Runs `kubectl bwagent`: `__main__.py` of its one file. An older Python can parse this module."""

import sys

NEEDED = (3, 11)
MISSING = (
    "kubectl bwagent: this needs the package {0}, which is not in this file: install bwagent "
    "from its checkout (pip install .). "
    "The Nodes of a cluster: kubectl get nodes -o json | kubectl bwagent fleet verify --nodes -"
)


def start() -> None:
    """Run the command line; exit with a line in place of a traceback if a package is missing."""
    if sys.version_info < NEEDED:
        sys.exit("kubectl bwagent: python3 is older than Python 3.11")
    try:
        from agent.cli import main

        main()
    except ModuleNotFoundError as error:
        sys.exit(MISSING.format(error.name))


if __name__ == "__main__":
    start()
