"""Derive a switch name from a NodeDescription (IBTA vol. 1, 14.2.5.2).

Invariant: a description is a name only if an administrator chose it. The factory text and a default
host name (`localhost`, `switch`, the model) are the same on every switch of a model, so as a label
they would merge all of them into one leaf. Such a node has no name, and its node GUID is the
identity.

Managed switches (MLNX-OS, NVOS) compose the description of the host name, the model and the
position of the ASIC in the chassis:

    MF0;L90.1.3:MQM9700/U1        one ASIC                               L90.1.3
    MF0;cs7500:IS5200/L01/U1      leaf board 1 of a director             cs7500-L01
    MF0;x800:Q3400_RA/U3          the third of a chassis's four planes   x800-U3
    MF0;x800:Q3400_RA/U1/RT       the router function of an ASIC         x800-RT

The first ASIC (U1) is left out, so that an ordinary switch has its host name and nothing else.
"""

from __future__ import annotations

from functools import lru_cache

from agent.text import with_octets

_MANAGED = "MF0;"
_FIRST_ASIC = "U1"
# Mellanox: "Quantum", "SwitchIB", "SwitchX -", "Infiniscale-IV", "MT47396 Infiniscale-III" and so
# on, each followed by this; Voltaire: "ISR9024D Voltaire".
_DEFAULT_HOSTS = frozenset({"localhost", "localhost.localdomain", "switch"})
_FACTORY_ENDINGS = ("mellanox technologies", "voltaire")


def text(field: bytes) -> str:
    r"""Decode a NodeString: UTF-8 up to the first NUL, or all 64 bytes if there is none.

    Undecodable bytes, and the bytes of unprintable characters, become `\xNN`; white space at both
    ends is stripped.
    """
    return with_octets(field.partition(b"\0")[0].decode("utf-8", "backslashreplace").strip())


@lru_cache(4096)  # every observation names the same few switches
def switch_name(description: str) -> str | None:
    """Return the name that an administrator gave the node; None if it is a default or empty."""
    if description.startswith(_MANAGED):
        # `L90.1.3:MQM9700/U1`; a host name with the position of its ASIC in the chassis
        name, colon, model = description.removeprefix(_MANAGED).rpartition(":")
        if not colon:
            return None if _is_default(model) else model or None
        model, *parts = model.split("/")
        if _is_default(name) or name.casefold() == model.casefold():
            return None
        position = [part for part in parts if part not in ("", _FIRST_ASIC)]
        return "-".join([name, *position]) if name else None
    if description.lower().endswith(_FACTORY_ENDINGS):
        return None
    return None if _is_default(description) else description or None


def _is_default(host: str) -> bool:
    return host.casefold() in _DEFAULT_HOSTS
