"""Reading the pages of a module: which are asked for, and what stays of a read that fails."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]

from agent.transceiver.query import read
from tests.support.transceivers import DAC, DR8, SR4

PLACES = {(0, 0): "lower", (128, 0): "00h", (128, 1): "01h", (128, 0x11): "11h"}


class Reply:
    """The answer of the kernel."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets

    def get_attr(self, name: str) -> list[int]:
        assert name == "ETHTOOL_A_MODULE_EEPROM_DATA"
        return [*self._octets]


class Nic:
    """A NIC with a module; reads of one page may fail."""

    def __init__(self, pages: dict[str, bytes], failing: str = "") -> None:
        self._pages, self._failing = pages, failing

    def get_module_eeprom(self, message: Any, netdev: str) -> list[Reply]:
        assert netdev == "eth0"
        asked = {key.rpartition("EEPROM_")[2]: value for key, value in message["attrs"]}
        assert (asked["LENGTH"], asked["BANK"], asked["I2C_ADDRESS"]) == (128, 0, 0x50)
        name = PLACES[asked["OFFSET"], asked["PAGE"]]
        if name == self._failing:
            raise NetlinkError(5, "Input/output error")
        return [Reply(self._pages[name])]


def asked(nic: Nic) -> dict[str, Any]:
    return read("eth0", lambda: nullcontext(nic))


@pytest.mark.parametrize("pages", [SR4, DR8, DAC], ids=["SR4", "DR8", "DAC"])
def test_the_pages_that_the_module_has_are_read(pages: dict[str, bytes]) -> None:
    """Flat memory has page 00h alone."""
    whole = {name: octets.hex() for name, octets in pages.items()}
    assert asked(Nic(pages)) == {"netdev": "eth0", "pages": whole, "error": None}


def test_a_failed_read_is_one_line() -> None:
    """The pages before it stay."""
    answer = asked(Nic(DR8, "11h"))
    assert (answer["error"], [*answer["pages"]]) == ("Input/output error", ["lower", "00h", "01h"])
    assert asked(Nic(DR8, "lower"))["pages"] == {}


def test_another_kind_of_module_is_read_no_further() -> None:
    answer = asked(Nic({"lower": b"\x03" + bytes(127)}))
    assert answer["error"] == "identifier 0x03 is neither of SFF-8636 nor of CMIS"
    assert [*answer["pages"]] == ["lower"]
