"""The running kernel: it has lo, and may have devlink; no privilege is needed."""

from __future__ import annotations

import errno

from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]

from agent.nic import query
from agent.nic.driver import LinkState, link_state


def test_the_running_kernel() -> None:
    """Lo is up, a netdev that is gone is left out; a quick query leaves out all links."""
    answer = query.answer({"netdevs": ["lo", "bwnic9"]})
    assert [link_state(row) for row in answer["links"]] == [LinkState("lo", is_up=True)]
    assert answer["errors"] == []
    assert query.answer({"netdevs": ["lo"], "quick": True})["links"] == []


def test_refusals() -> None:
    """What the kernel does not have is none."""
    errors: query.Errors = []
    for number in (errno.EPERM, errno.EOPNOTSUPP):
        with query.refusal("eth0", errors):
            raise NetlinkError(number)
    assert errors == [["eth0", "Operation not permitted"]]
