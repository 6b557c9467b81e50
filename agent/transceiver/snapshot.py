"""The part of a snapshot that has the transceiver modules.

modules.json    the helper's answer (agent/helper/main.py, modules)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from agent.recorded_answer import RecordedAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles

NOT_IN_IT = "the snapshot has no modules: bwagent capture --modules"
SERIALS = {True: slice(68, 84), False: slice(38, 54)}  # of page 00h; True: SFF-8636, else CMIS
CUSTOM = 96  # octets 224 to 255 of page 00h are the vendor's own


class RecordedModules(RecordedAnswer):
    """The answer about the modules."""

    file: ClassVar[str] = "modules.json"
    field: ClassVar[str] = "modules"
    absent: ClassVar[str] = NOT_IN_IT

    @classmethod
    def load(cls, files: SnapshotFiles, _facts: Mapping[str, Any]) -> Self:
        """Load the record; raises Malformed."""
        answer = files.json(cls.file)
        if answer is not None:
            from agent.transceiver.eeprom import loaded  # most snapshots have no modules

            loaded(answer)
        return cls(answer)

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced serial numbers, and without the vendors' own octets."""
        if self.answer is None:
            return self
        from agent.transceiver.eeprom import LOWER, MODULES, QSFP, UPPER, loaded

        modules = []
        for module in loaded(self.answer):
            pages = dict(module.pages)
            if UPPER in pages:
                octets = bytearray(pages[UPPER])
                place = SERIALS[pages.get(LOWER, b"")[:1] in {bytes([kind]) for kind in QSFP}]
                serial = octets[place].decode("ascii", "replace").strip(" \0")
                octets[place] = f"{names.peer(serial, 'serial') if serial else '':16.16}".encode()
                octets[CUSTOM:] = bytes(len(octets[CUSTOM:]))
                pages[UPPER] = bytes(octets)
            modules.append(module._replace(netdev=names.text(module.netdev), pages=pages))
        return type(self)({"modules": MODULES.document(modules)})
