"""Ask the kernel about NICs through pyroute2: ethtool netlink, and devlink. Unprivileged.

Only the helper's verb `nics` (agent/helper/main.py) imports this: pyroute2 costs 32 MB and 0.4 s.
The health reporters are asked first: firmware that is dead may hold up the other requests.

The classes of messages are pyroute2's where it has the attributes. That of the link state is our
own, from genlmsg: pyroute2 0.9 lacks the extended state, and a subclass of a class that was decoded
before would have the attributes of its parent. A row has the numbers of the kernel's ABI; an
attribute that a message lacks is null.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, genlmsg  # type: ignore[import-untyped]
from pyroute2.netlink.devlink import devlinkcmd  # type: ignore[import-untyped]
from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]
from pyroute2.netlink.generic import (  # type: ignore[import-untyped]
    AsyncGenericNetlinkSocket,
    GenericNetlinkSocket,
)
from pyroute2.netlink.generic.ethtool import ethtoolheader  # type: ignore[import-untyped]

from agent.nic.driver import device_row
from agent.text import Json

LINKSTATE_GET = 6  # include/uapi/linux/ethtool_netlink.h: ETHTOOL_MSG_LINKSTATE_GET
# include/uapi/linux/devlink.h: DEVLINK_CMD_INFO_GET, DEVLINK_CMD_HEALTH_REPORTER_GET
INFO_GET, REPORTER_GET = 51, 52
REPORTER_ATTRIBUTES = {  # DEVLINK_ATTR_HEALTH_REPORTER_*, by key of a row
    "name": "NAME",
    "state": "STATE",
    "errors": "ERR_COUNT",
    "recoveries": "RECOVER_COUNT",
    "dump_ns": "DUMP_TS_NS",
}

# A netdev that is gone or has no such operation, a kernel without the family.
_ABSENT = frozenset({errno.EOPNOTSUPP, errno.ENODEV, errno.ENOENT})
Errors = list[list[str]]  # subject and text of each refusal
AsyncGenericNetlinkSocket.module_err_level = "debug"  # a kernel without a family is no error


class LinkStateMessage(genlmsg):  # type: ignore[misc]
    """ETHTOOL_MSG_LINKSTATE_GET and its reply."""

    nla_map = (
        ("ETHTOOL_A_LINKSTATE_UNSPEC", "none"),
        ("ETHTOOL_A_LINKSTATE_HEADER", "ethtoolheader"),
        ("ETHTOOL_A_LINKSTATE_LINK", "uint8"),
        ("ETHTOOL_A_LINKSTATE_SQI", "uint32"),
        ("ETHTOOL_A_LINKSTATE_SQI_MAX", "uint32"),
        ("ETHTOOL_A_LINKSTATE_EXT_STATE", "uint8"),
        ("ETHTOOL_A_LINKSTATE_EXT_SUBSTATE", "uint8"),
        ("ETHTOOL_A_LINKSTATE_EXT_DOWN_CNT", "uint32"),
    )
    ethtoolheader = ethtoolheader


def answer(payload: Json) -> Json:
    """Return the answer of the helper's verb `nics`; agent/nic/driver.py decodes it.

    In: {"netdevs": [name, ...], "quick": true for the health reporters alone}.
    Out: {"links": rows, "devices": rows, "errors": [[subject, text], ...]}. A kernel without
    devlink has no devices.
    """
    errors: Errors = []
    is_quick = payload.get("quick", False)
    reporters = [*_devlink(REPORTER_GET, "health reporters", errors)]
    links: list[Json] = []
    if not is_quick:
        with refusal("link states", errors), closing(GenericNetlinkSocket()) as sock:
            sock.bind("ethtool", LinkStateMessage)
            for netdev in payload["netdevs"]:
                with refusal(netdev, errors):
                    request = link_request(netdev)
                    for reply in sock.nlm_request(request, sock.prid, NLM_F_REQUEST):
                        links.append(link_row(netdev, reply))  # noqa: PERF401 - the next may fail
    infos = [] if is_quick else [*_devlink(INFO_GET, "firmware", errors)]
    return {"links": links, "devices": device_rows(reporters, infos), "errors": errors}


def _devlink(command: int, subject: str, errors: Errors) -> Iterator[Any]:
    # DL of pyroute2 leaves its event loop open where the kernel has no devlink.
    with refusal(subject, errors), closing(GenericNetlinkSocket()) as sock:
        sock.bind("devlink", devlinkcmd)
        request = devlinkcmd()
        request["cmd"] = command  # without attributes: of all devices
        yield from sock.nlm_request(request, sock.prid, NLM_F_REQUEST | NLM_F_DUMP)


@contextmanager
def refusal(subject: str, errors: Errors) -> Iterator[None]:
    """Note an error of the kernel; what it does not have is none."""
    try:
        yield
    except NetlinkError as error:
        if error.code not in _ABSENT:
            errors.append([subject, os.strerror(error.code)])


def link_request(netdev: str) -> Any:
    """Return the request for the link state of a netdev."""
    message = LinkStateMessage()
    message["cmd"], message["version"] = LINKSTATE_GET, 1
    header = {"attrs": [["ETHTOOL_A_HEADER_DEV_NAME", netdev]]}
    message["attrs"].append(("ETHTOOL_A_LINKSTATE_HEADER", header))
    return message


def link_row(netdev: str, message: Any) -> Json:
    """Return the row of a reply to ETHTOOL_MSG_LINKSTATE_GET."""
    keys = ("link", "ext_state", "ext_substate", "ext_down_cnt")
    row = {key: message.get_attr(f"ETHTOOL_A_LINKSTATE_{key.upper()}") for key in keys}
    return {"netdev": netdev} | row


def device_rows(reporters: Iterable[Any], infos: Iterable[Any]) -> list[Json]:
    """Return a row for each device; serial numbers are left out. What a message lacks is null."""
    rows: dict[str, Json] = {}

    def row_of(message: Any) -> Json:
        names = (message.get_attr(f"DEVLINK_ATTR_{key}_NAME") for key in ("BUS", "DEV"))
        return device_row(rows, *names)

    for message in reporters:
        reporter = message.get_attr("DEVLINK_ATTR_HEALTH_REPORTER")
        facts = {
            key: reporter.get_attr(f"DEVLINK_ATTR_HEALTH_REPORTER_{name}") if reporter else None
            for key, name in REPORTER_ATTRIBUTES.items()
        }
        facts["port"] = message.get_attr("DEVLINK_ATTR_PORT_INDEX")
        row_of(message)["reporters"].append(facts)
    for message in infos:
        row = row_of(message)
        row["driver"] = message.get_attr("DEVLINK_ATTR_INFO_DRIVER_NAME")
        for key in ("running", "stored"):
            row[key] = [
                {
                    word: version.get_attr(f"DEVLINK_ATTR_INFO_VERSION_{word.upper()}")
                    for word in ("name", "value")
                }
                for version in message.get_attrs(f"DEVLINK_ATTR_INFO_VERSION_{key.upper()}")
            ]
    return [*rows.values()]
