"""Decoding of module EEPROMs: pages of real modules, and pages that are not whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.transceiver import eeprom
from agent.transceiver.eeprom import Transceiver
from tests.support.transceivers import AEC, DAC, DR8, LOWER_WITH_LIGHT, SR4


def test_sff_8636_without_light() -> None:
    """Light of 0 mW is measured; the flags name the lanes."""
    assert eeprom.decode(SR4) == Transceiver(
        "QSFP28",
        "Mellanox",
        "MMA1B00-SS1",
        "MT1834FT03846",
        39.5,
        (0.0,) * 4,
        (0.0,) * 4,
        (
            "rx loss of signal: lanes 1 2 3 4",
            "tx loss of signal: lanes 1 2 3 4",
            "rx power low alarm: lanes 1 2 3 4",
            "rx power low warning: lanes 1 2 3 4",
        ),
    )


def test_sff_8636_with_light() -> None:
    """The lower memory of a module with a link; its page 00h is of another."""
    module = eeprom.decode(SR4 | {"lower": LOWER_WITH_LIGHT})
    assert module.celsius == 42.7
    assert module.rx_mw == (0.8572, 0.9783, 0.7599, 0.7527)
    assert module.tx_mw == (0.7539, 0.717, 0.8576, 0.9154)
    assert module.alarms == ()


def test_cmis_with_light_in_eight_lanes() -> None:
    module = eeprom.decode(DR8)
    assert module[:5] == ("OSFP", "JUNIPER-1G1", "740-174932", "1G1TK1AA350AZ", 57.9)
    assert module.rx_mw == (1.6946, 1.7029, 2.1019, 1.7118, 1.6553, 1.9279, 1.0707, 1.5247)
    assert module.tx_mw == (1.9723, 1.4881, 1.5262, 1.3601, 1.772, 1.1713, 1.8687, 1.5301)
    assert module.alarms == ()


def test_cmis_of_cables_has_no_light() -> None:
    """An active electrical cable has a temperature, passive copper has none."""
    assert eeprom.decode(AEC) == Transceiver(
        "OSFP", "Credo", "CAC845301A2NC2XA", "BL8J4455150007V", 51.3
    )
    dac = Transceiver("QSFP-DD", "CISCO", "68-103205-02", "FAB261100CQ", None)
    assert eeprom.decode(DAC) == dac


def test_flags_of_cmis() -> None:
    """Of the module the high alarm is in the lowest bit, of lanes lane 1."""
    lower, lanes = bytearray(DR8["lower"]), bytearray(DR8["11h"])
    lower[9] = 0b1000_0001
    lanes[147 - 128], lanes[150 - 128], lanes[135 - 128] = 0b1000_0001, 0b10, 0xFF
    module = eeprom.decode(DR8 | {"lower": bytes(lower), "11h": bytes(lanes)})
    assert module.alarms == (
        "temperature high alarm",
        "supply voltage low warning",
        "tx fault: lanes 1 2 3 4 5 6 7 8",
        "rx loss of signal: lanes 1 8",
        "rx power low alarm: lane 2",
    )


@pytest.mark.parametrize(("octets", "text"), [(b"\x80\0", "-128"), (b"\x7f\xff", "128")])
@pytest.mark.parametrize(("module", "place"), [(SR4, 22), (DR8, 14)])
def test_a_temperature_that_cannot_be_is_none(
    module: dict[str, bytes], place: int, octets: bytes, text: str
) -> None:
    lower = bytearray(module["lower"])
    lower[place : place + 2] = octets
    decoded = eeprom.decode(module | {"lower": bytes(lower)})
    assert decoded.celsius is None
    assert decoded.alarms[0] == f"temperature reads {text} C"
    assert decoded[:4] == eeprom.decode(module)[:4]


def test_lanes_that_a_module_lacks_are_left_out() -> None:
    upper = bytearray(DR8["00h"])
    upper[210 - 128] = 0xF0
    module = eeprom.decode(DR8 | {"00h": bytes(upper)})
    assert module.rx_mw == (1.6946, 1.7029, 2.1019, 1.7118)


@pytest.mark.parametrize("module", [SR4, DR8, AEC, DAC], ids=["SR4", "DR8", "AEC", "DAC"])
def test_a_page_that_is_missing_or_short_is_named(module: dict[str, bytes]) -> None:
    """No value is guessed from what is there of it."""
    for name in eeprom.pages_of(module["lower"]):
        for octets in (0, 1, 60, 127):
            with pytest.raises(Malformed, match=f"^page {name} has {octets} of 128 octets$"):
                eeprom.decode({**module, name: module.get(name, bytes(128))[:octets]})
        with pytest.raises(Malformed, match=r"^page \w+ was not read$"):
            eeprom.decode({"lower": module["lower"]})
    for octets in (0, 2, 85, 127):
        with pytest.raises(Malformed, match=f"^lower memory has {octets} of 128 octets$"):
            eeprom.decode({**module, "lower": module["lower"][:octets]})


def test_another_kind_of_module_is_named() -> None:
    text = "^identifier 0x03 is neither of SFF-8636 nor of CMIS$"
    with pytest.raises(Malformed, match=text):
        eeprom.decode({"lower": b"\x03" + bytes(127), "00h": bytes(128)})


@given(st.dictionaries(st.sampled_from(["lower", "00h", "01h", "11h"]), st.binary(max_size=130)))
def test_any_octets(pages: dict[str, bytes]) -> None:
    try:
        module = eeprom.decode(pages)
    except Malformed:
        return
    assert module.vendor.isascii()
