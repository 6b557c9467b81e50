"""The library jumping_clock.c, which sets the wall clock of a process that runs."""

from __future__ import annotations

from pathlib import Path

from tests.support.stand_in import build_preloaded


class WallClock:
    """The wall clock of the processes with this environment."""

    def __init__(self, folder: Path) -> None:
        library, self._file = build_preloaded("jumping_clock", folder), folder / "ahead"
        self._file.write_text("0")
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(self._file)}

    def set(self, ahead: int) -> None:
        """Set it to so many seconds ahead of the real one."""
        part = self._file.with_suffix(".part")
        part.write_text(str(ahead))
        part.rename(self._file)
