"""The type of one line of `bwagent doctor`, and the I/O of the functions that return them.

The checks of a data source are in the folder of its protocol; agent/shell/doctor.py runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from agent.model import Observation

AS_ROOT = "sudo bwagent doctor"
MAX_NAMED = 8  # ports, or failed reads, in a line
NOT_PERMITTED = frozenset({"EACCES", "EPERM"})


class Step(IntEnum):
    """The kinds of what may be missing, in the order in which an operator mends them."""

    DRIVER = 1
    MODULE = 2
    FIRMWARE = 3
    TRANSCEIVER = 4
    DEVICE_FILE = 5
    LIBRARY = 6
    PRIVILEGE = 7
    CLUSTER = 8


class Check(NamedTuple):
    """One line: what is there, what this node does not have, or what is missing."""

    text: str
    is_there: bool = False
    missing: Step | None = None
    command: str = ""  # that brings what is missing


def there(text: str) -> Check:
    """Return a check that found what it looked for."""
    return Check(text, is_there=True)


def absent(text: str) -> Check:
    """Return a check of what this node does not have, and needs not."""
    return Check(text)


def missing(step: Step, text: str, command: str) -> Check:
    """Return a check that found something missing."""
    return Check(text, missing=step, command=command)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The node that is checked: one observation of all sources, and what explains its failures.

    A fault is the name of an errno; None is no fault. A capture (`is_live` is false) has what one
    observation reads: of other folders and files, and of faults, nothing is known.
    """

    observation: Observation
    names: Callable[[str], list[str]]  # entries of a folder below sys/; [] if there is none
    text: Callable[[str], str | None]  # of a file below sys/; None if there is none
    device_fault: Callable[[str], str | None]  # of a device file
    lldp_fault: Callable[[str], str | None]  # of the packet socket of a netdev
    private_flags: Callable[[str], Mapping[str, bool]]  # of a netdev's driver
    is_live: bool = True
