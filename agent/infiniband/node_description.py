"""What an InfiniBand node calls itself: NodeDescription (IBTA vol. 1, 14.2.5.2).

The law of this module: a description is a name only if somebody chose it. What left the factory is the same on every
switch of a model, and as a label it would make one leaf out of all of them; then there is no name, and the node GUID is
the identity.

Managed switches (MLNX-OS, NVOS) compose theirs out of the host name and the place of the ASIC in the box:

    MF0;L90.1.3:MQM9700/U1        one ASIC                               L90.1.3
    MF0;cs7500:IS5200/L01/U1      leaf board 1 of a director             cs7500-L01
    MF0;x800:Q3400_RA/U3          the third of a box's four planes       x800-U3
    MF0;x800:Q3400_RA/U1/RT       the router function of an ASIC         x800-RT

The first ASIC is not counted, so that an ordinary switch carries its host name and nothing else.
"""

from __future__ import annotations

_MANAGED = "MF0;"
_FIRST_ASIC = "U1"
# Mellanox: "Quantum", "SwitchIB", "SwitchX -", "Infiniscale-IV", "MT47396 Infiniscale-III" and so on, each followed by
# this; Voltaire: "ISR9024D Voltaire".
_FACTORY_ENDINGS = ("mellanox technologies", "voltaire")


def text(field: bytes) -> str:
    r"""The NodeString of a NodeDescription: UTF-8 up to the first NUL, or all 64 bytes of it where there is none.

    Undecodable bytes, and the bytes of unprintable characters, become `\xNN`; outer white space goes.
    """
    decoded = field.partition(b"\0")[0].decode("utf-8", "backslashreplace").strip()
    return "".join(
        character if character.isprintable() else _escape(character) for character in decoded
    )


def _escape(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def switch_name(description: str) -> str | None:
    """The name that somebody gave to the node; None when there is none, and the GUID must do."""
    if description.startswith(_MANAGED):
        return _managed_name(description.removeprefix(_MANAGED))
    if description.lower().endswith(_FACTORY_ENDINGS):
        return None
    return description or None


def _managed_name(composed: str) -> str | None:
    name, _, model = composed.rpartition(":") if ":" in composed else (composed, "", "")
    places = [place for place in model.split("/")[1:] if place and place != _FIRST_ASIC]
    return "-".join([name, *places]) if name else None
