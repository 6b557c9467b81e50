"""The exposition, read by Prometheus' own linter."""

from __future__ import annotations

import shutil
import subprocess

from tests.support.exposition import complete, text
from tests.support.real_parts import require


def test_promtool_has_no_complaint() -> None:
    """Prometheus' own linter reads all of it."""
    require(None if shutil.which("promtool") else "promtool is missing (Debian package prometheus)")
    exposed = text(complete()).encode()
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=exposed, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
