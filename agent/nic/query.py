"""Ask the kernel about NICs through pyroute2: ethtool netlink, and devlink. Unprivileged.

Only the helper's verb `nics` (agent/helper/main.py) imports this: pyroute2 costs 32 MB and 0.4 s.
The health reporters are asked first: firmware that is dead may hold up the other requests.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST  # type: ignore[import-untyped]
from pyroute2.netlink.devlink import devlinkcmd  # type: ignore[import-untyped]
from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]
from pyroute2.netlink.generic import (  # type: ignore[import-untyped]
    AsyncGenericNetlinkSocket,
    GenericNetlinkSocket,
)

from agent.nic import messages
from agent.text import Json

# A netdev that is gone or has no such operation, a kernel without the family.
_ABSENT = frozenset({errno.EOPNOTSUPP, errno.ENODEV, errno.ENOENT})
Errors = list[list[str]]  # subject and text of each refusal
AsyncGenericNetlinkSocket.module_err_level = "debug"  # a kernel without a family is no error


def answer(payload: Json) -> Json:
    """Return the answer of the helper's verb `nics`.

    In: {"netdevs": [name, ...], "quick": true for the health reporters alone}. Out: of `query`.
    """
    return query(payload["netdevs"], is_quick=payload.get("quick", False))


def query(netdevs: Sequence[str], *, is_quick: bool = False) -> Json:
    """Return {"links": rows, "devices": rows, "errors": [[subject, text], ...]}.

    A kernel without devlink has no devices. A quick query asks for the health reporters alone.
    agent/nic/health.py decodes the answer.
    """
    errors: Errors = []
    reporters = [*_devlink(messages.REPORTER_GET, "health reporters", errors)]
    links = [] if is_quick else [*_links(netdevs, errors)]
    infos = [] if is_quick else [*_devlink(messages.INFO_GET, "firmware", errors)]
    return {"links": links, "devices": messages.device_rows(reporters, infos), "errors": errors}


def _links(netdevs: Sequence[str], errors: Errors) -> Iterator[Json]:
    with refusal("link states", errors), closing(GenericNetlinkSocket()) as sock:
        sock.bind("ethtool", messages.LinkStateMessage)
        for netdev in netdevs:
            with refusal(netdev, errors):
                request = messages.link_request(netdev)
                for reply in sock.nlm_request(request, sock.prid, NLM_F_REQUEST):
                    yield messages.link_row(netdev, reply)


def _devlink(command: int, subject: str, errors: Errors) -> Iterator[Any]:
    # DL of pyroute2 leaves its event loop open where the kernel has no devlink.
    with refusal(subject, errors), closing(GenericNetlinkSocket()) as sock:
        sock.bind("devlink", devlinkcmd)
        request = messages.devlink_request(command)
        yield from sock.nlm_request(request, sock.prid, NLM_F_REQUEST | NLM_F_DUMP)


@contextmanager
def refusal(subject: str, errors: Errors) -> Iterator[None]:
    """Note an error of the kernel; what it does not have is none."""
    try:
        yield
    except NetlinkError as error:
        if error.code not in _ABSENT:
            errors.append([subject, os.strerror(error.code)])
