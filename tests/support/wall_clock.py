"""The library jumping_clock.c, which sets the wall clock of a process that runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.stand_in import missing

__all__ = ["WallClock", "missing"]

SOURCE = Path(__file__).with_name("jumping_clock.c")


class WallClock:
    """The wall clock of the processes with this environment."""

    def __init__(self, folder: Path) -> None:
        library, self._file = folder / "jumping_clock.so", folder / "ahead"
        self._file.write_text("0")
        command = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True, timeout=60)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(self._file)}

    def set(self, ahead: int) -> None:
        """Set it to so many seconds ahead of the real one."""
        part = self._file.with_suffix(".part")
        part.write_text(str(ahead))
        part.rename(self._file)
