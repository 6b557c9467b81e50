"""Devices whose VPD cannot be read: held for a time, then judged by what was read before.

The VPD of a function that manages NVSwitches contains SW_MNG, and its ports are no data ports.
While it cannot be read the device has failed. But firmware whose VPD always gives EIO is common, so
a failure that outlasts the hold is judged

1. by the value last read of a function at that PCI address with that board_id;
2. if there is none, by any function with that board_id: an HGX board has several that are alike;
3. otherwise as a VPD without SW_MNG.

Times are seconds of a clock that does not jump; nothing here reads a clock or a file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from agent.model import Problem, RdmaDevice

Function = tuple[str | None, str | None]  # PCI address, board_id

SOURCE = "rdma"
UNREAD = "its VPD cannot be read"


class VpdMemory:
    """The VPDs read so far, and since when the others fail.

    With an infinite `hold`, that of a single observation, no failure is judged.
    """

    def __init__(self, hold: float = math.inf) -> None:
        self._hold = hold
        self._known: dict[Function, bool] = {}  # whether the VPD contains SW_MNG
        self._failed_at: dict[Function, float] = {}

    def judged(
        self, devices: Iterable[RdmaDevice], now: float
    ) -> tuple[tuple[RdmaDevice, ...], list[Problem]]:
        """Return the devices as failed or judged, with a problem for each that is judged."""
        devices = tuple(devices)
        for device in devices:
            self._learn(device)
        self._failed_at = {
            _function(device): self._failed_at.get(_function(device), now)
            for device in devices
            if device.vpd_unread
        }
        found = tuple(self._judge(device, now) for device in devices)
        return found, [_problem(one) for one in found if one.vpd_unread and not one.failure]

    def next_end(self, now: float) -> float:
        """Return the time at which the next hold ends; infinity if none is running."""
        ends = (since + self._hold for since in self._failed_at.values())
        return min((end for end in ends if end > now), default=math.inf)

    def _learn(self, device: RdmaDevice) -> None:
        if device.pci and device.nvswitch_management is not None:
            self._known[_function(device)] = device.nvswitch_management

    def _judge(self, device: RdmaDevice, now: float) -> RdmaDevice:
        if not device.vpd_unread:
            return device
        if now < self._failed_at[_function(device)] + self._hold:
            return replace(device, failure=UNREAD, ports=())
        return replace(device, nvswitch_management=self._manages_nvswitches(device))

    def _manages_nvswitches(self, device: RdmaDevice) -> bool:
        known = self._known.get(_function(device))
        return self._has_such_a_board(device) if known is None else known

    def _has_such_a_board(self, device: RdmaDevice) -> bool:
        """Return True if a function with the same board_id contains SW_MNG."""
        boards = {board for (_, board), manages in self._known.items() if manages}
        return device.board_id is not None and device.board_id in boards


def _function(device: RdmaDevice) -> Function:
    return device.pci, device.board_id


def _problem(device: RdmaDevice) -> Problem:
    judged = "with" if device.nvswitch_management else "without"
    path = f"/sys/class/infiniband/{device.name}/device/vpd"
    return Problem(SOURCE, path, None, f"judged as a VPD {judged} SW_MNG")
