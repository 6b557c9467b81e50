"""Reasons: why a port has no neighbor, a node no accelerator label, a label no confirmation.

The words of a verdict, and of the last errors of a link, stand here, too.
"""

from enum import StrEnum
from typing import NamedTuple, Self

SWITCHED_OFF = "switched off by --source"  # the outcome of a source that is left out


class Reason(StrEnum):
    """A reason in the JSON document, its text for operators, and True if it holds labels.

    A member is a str: it compares equal to its word, and `json` writes the word.
    """

    text: str
    holds: bool

    def __new__(cls, word: str, text: str, holds: bool = True) -> Self:  # noqa: FBT002 - a member's tuple
        member = str.__new__(cls, word)
        member._value_, member.text, member.holds = word, text, holds
        return member

    @classmethod
    def of(cls, word: str) -> Self | None:
        """Return the reason with this word; None if there is none (in a stranger's snapshot)."""
        return next((reason for reason in cls if reason == word), None)


class NeighborReason(Reason):
    """Reasons for a backend port without neighbor (`missing_neighbors` in the JSON document)."""

    LINK_DOWN = "link-down", "no link", False
    EXPIRED = "expired", "LLDP TTL expired", False
    SHUTDOWN = "shutdown", "LLDP shutdown received (TTL 0)", False
    SILENT = "silent", "no LLDP frame received (switches send one every 30 s)", True
    NOT_LISTENED = "not-listened", "LLDP was not listened for", True
    BLOCKED_BY_FIRMWARE = "blocked-by-firmware", "the NIC's firmware consumes LLDP frames", True
    TAKEN_BY_BRIDGE = (
        "taken-by-bridge",
        "a bridge takes the LLDP frames (group_fwd_mask, Open vSwitch): use --openvswitch",
        True,
    )
    NOT_PERMITTED = (
        "not-permitted",
        "not permitted (LLDP needs CAP_NET_RAW, InfiniBand /dev/infiniband/umad*)",
        True,
    )
    NO_NETDEV = "no-netdev", "no network device in this namespace: lent to a pod", True
    NETDEV_NOT_RECORDED = "netdev-not-recorded", "no netdev recorded", True
    NO_ANSWER = "no-answer", "no answer to subnet management packets", True
    NO_UMAD = "no-umad", "no libibumad, or no umad device (module ib_umad)", True
    REFUSED = "refused", "the port has no subnet management interface", True
    SEND_FAILED = "send-failed", "the subnet management packet could not be sent", True
    MALFORMED = "malformed", "malformed answer, or LLDP frames that are refused", True
    # of the subnet administrator (SA), where subnet management packets are not answered
    NO_SM = "no-sm", "no subnet manager has configured the port", True
    NO_LID = "no-lid", "the port has no LID of its own to ask the subnet administrator for", True
    SA_NO_ANSWER = "sa-no-answer", "no answer of the subnet administrator", True
    SA_BUSY = "sa-busy", "the subnet administrator is busy", True
    SA_REFUSED = "sa-refused", "the subnet administrator refused the request", True
    SA_NO_RECORD = "sa-no-record", "the subnet administrator has no link of this port", True
    SA_FOREIGN = "sa-foreign", "the subnet administrator answered about another port", True
    SA_AMBIGUOUS = "sa-ambiguous", "the links of the port lead to several switches", True
    LIMITED_PKEY = "limited-pkey", "the port is a limited member of its partition", True
    NOT_RECORDED = "not-recorded", "the snapshot has no answer for this port", True
    UNAVAILABLE = "unavailable", "LLDP frames could not be received", True


class AcceleratorReason(Reason):
    """Reasons for a missing accelerator label (`accelerator.reason` in the JSON document)."""

    NOT_FOUND = "not-found", "no NVIDIA GPU on the PCI bus", False
    UNSUPPORTED = "unsupported", "no NVLink fabric, or a cluster UUID of zeros", False
    UNHEALTHY = "unhealthy", "fabric registration completed without success", False
    INCONSISTENT = "inconsistent", "the GPUs report different domains", False
    NOT_STARTED = "not-started", "fabric registration has not started", True
    IN_PROGRESS = "in-progress", "fabric registration is in progress", True
    FAILED = "failed", "the GPUs could not be queried", True


class TierReason(Reason):
    """Reasons for a missing tier above the leaf switches."""

    NO_TIERS = "no-tiers", "the leaf switches are linked to leaf switches: no tree", False
    PEERS = "peers", "the switches above tier 1 are linked to each other: no tree", False
    TOP = "top", "no switch of the subnet is above", False


class HoldReason(Reason):
    """Reasons why a published label stays as it is though its source does not confirm it."""

    SOURCE_OFF = "source-off", "its source is switched off"
    SOURCE_FAILED = "source-failed", "its source could not be read"
    FRONT_END_UNKNOWN = (
        "front-end-unknown",
        "the default route of the host is not known, so the backend is not known either",
    )
    DEVICE_FAILED = "device-failed", "an RDMA device could not be read"
    DEVICE_GONE = (
        "device-gone",
        "the RDMA device is gone, but its PCI function is not: the driver may be reloading",
    )
    LENT = "lent", "the port's network device is in another namespace: lent to a pod"
    LINK_DOWN = "link-down", "the link went down a moment ago"
    NO_NEIGHBOR = "no-neighbor", "the neighbor is not known now"
    NOT_ASKED = "not-asked", "the subnet administrator has not been asked since the start"
    NOT_REMEMBERED = (
        "not-remembered",
        "the annotation had no room for the last neighbor of a port without one",
    )
    INCOMPLETE = "incomplete", "the state or rate of a backend port could not be read"
    LAST_COUNT = "last-count", "it contains what ports that cannot be read counted last"
    NO_DOMAIN = "no-domain", "the NVLink domain is not known now"


class Verdict(StrEnum):
    """The verdict on the cables of a node (docs/verdict.md)."""

    NO_PLAN = "no-plan"
    PENDING = "pending"
    PASS = "pass"  # noqa: S105 - no password
    UNVERIFIED = "unverified"
    FAIL = "fail"


class BadLink(NamedTuple):
    """The last errors of the link of a port (agent/infiniband/bad_link.py)."""

    end: str  # a BadEnd
    time: int  # seconds since the epoch: the reading that told them
    reading: float | None = None  # its `LinkErrors.time`; None: another agent's


class Remembered(NamedTuple):
    """The verdict of an agent, as the next one of the same boot finds it in the annotation."""

    boot_id: str
    time: int | None  # of the last comparison, seconds since the epoch
    verdict: Verdict
    findings: int = 0
