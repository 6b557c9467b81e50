"""The program under a name on PATH, as an installation puts it there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.snapshots import NO_BYTECODE, REPOSITORY

# As pip writes it where a path has a space: no line of `#!` can name such an interpreter.
INSTALLED = f"""\
#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
import sys
from agent.cli import main
sys.exit(main())
"""
MODULE = f'#!/bin/sh\nexec "{sys.executable}" -m agent.cli "$@"\n'


def on_path(folder: Path, name: str, script: str) -> dict[str, str]:
    """Write a script below a folder; return an environment that has it first on PATH."""
    program = folder / "bin" / name
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {"PATH": path, "PYTHONPATH": str(REPOSITORY), "HOME": str(folder), **NO_BYTECODE}
