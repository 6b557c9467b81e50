"""Read the pages of a transceiver module by ethtool netlink, in a helper process.

MODULE_EEPROM_GET (Documentation/networking/ethtool-netlink.rst, kernel 5.13) needs CAP_NET_ADMIN.
It is an i2c transaction of the NIC with the module, so a module may well block it; it clears the
module's latched flags. The ioctl is no way: for CMIS its length ends before page 11h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]
from pyroute2.netlink.generic.ethtool import (  # type: ignore[import-untyped]
    NlEthtool,
    ethtool_module_eeprom_msg,
)

from agent.errors import Malformed
from agent.transceiver.eeprom import ADVERTISING, HALF, LANES, LOWER, UPPER, pages_of

if TYPE_CHECKING:
    from agent.text import Json

I2C_ADDRESS = 0x50
PLACES = {LOWER: (0, 0), UPPER: (HALF, 0), ADVERTISING: (HALF, 1), LANES: (HALF, 0x11)}
PREFIX = "ETHTOOL_A_MODULE_EEPROM_"


def answer(payload: Json) -> Json:
    """Read the modules of network devices, one after the other.

    In: {"netdevs": [name, ...]}. Out: {"modules": [{"netdev", "pages": {"lower" | "00h" | "01h" |
    "11h": hex}, "error": one line | null}]}; agent/transceiver/eeprom.py decodes the pages.
    """
    return {"modules": [read(netdev) for netdev in payload["netdevs"]]}


def read(netdev: str, connect: Callable[[], NlEthtool] = NlEthtool) -> Json:
    """Return {"netdev", "pages": {name: hex}, "error": one line | null}; what was read stays."""
    pages: dict[str, str] = {}
    answer: Json = {"netdev": netdev, "pages": pages, "error": None}
    try:
        with connect() as ethtool:
            lower = _page(ethtool, netdev, LOWER)
            pages[LOWER] = lower.hex()
            for name in pages_of(lower):
                pages[name] = _page(ethtool, netdev, name).hex()
    except NetlinkError as error:
        answer["error"] = str(error.args[1])
    except (OSError, Malformed) as error:
        answer["error"] = str(error)
    return answer


def _page(ethtool: NlEthtool, netdev: str, name: str) -> bytes:
    offset, page = PLACES[name]
    message = ethtool_module_eeprom_msg()
    attributes = {"OFFSET": offset, "LENGTH": HALF, "PAGE": page, "BANK": 0}
    attributes["I2C_ADDRESS"] = I2C_ADDRESS
    message["attrs"] = [(f"{PREFIX}{key}", value) for key, value in attributes.items()]
    (reply,) = ethtool.get_module_eeprom(message, netdev)
    return bytes(reply.get_attr(f"{PREFIX}DATA") or b"")
