"""Write the revision into wheels and sdists (agent/revision.py says how it is read).

The time is SOURCE_DATE_EPOCH if that is set, else the commit's. An editable install gets no file:
its checkout moves on.
"""

from __future__ import annotations

import os
import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RevisionHook(BuildHookInterface[Any]):
    """Adds agent/REVISION to a wheel or sdist; an unpacked sdist has it already."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the file to hatchling; raises ValueError if SOURCE_DATE_EPOCH is no number."""
        source = runpy.run_path(str(Path(self.root, "agent/revision.py")))
        known = source["revision"](Path(self.root))
        if version == "editable" or not known:
            return
        path = Path(self.root, source["FILE"])
        if not path.exists():
            epoch = os.environ.get("SOURCE_DATE_EPOCH")
            path = self._written(known._replace(time=int(epoch)) if epoch else known)
        # Forced in both cases, so that it has the same place in the archive.
        build_data["force_include"][str(path)] = source["FILE"]

    def _written(self, known: Any) -> Path:
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name, "REVISION")
        path.write_text(known.line())
        return path

    def finalize(self, *_: object) -> None:
        """Remove the file."""
        if hasattr(self, "folder"):
            self.folder.cleanup()
