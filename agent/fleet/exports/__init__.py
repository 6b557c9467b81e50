"""The formats of `fleet export`, by name.

A format is a pure function of a fleet and of the prefixes and keys that the operator chose. It
returns an `Exported`: `text` goes to standard output, `notes` to standard error, one line each. An
empty text says that no Node can be exported; the notes say why. Equal fleets give equal texts,
without times and versions, in natural order, so that `diff` shows what changed in the data hall.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.encode import Naming
from agent.fleet.exports import kueue, slurm, wiring
from agent.fleet.exports.text import Exported
from agent.fleet.exports.topology import Levels
from agent.fleet.model import Fleet

# The labels are those of the levels that the operator chose.
Format = Callable[[Fleet, Naming, Levels], Exported]
FORMATS: dict[str, Format] = {
    "csv": wiring.csv_rows,
    "dot": wiring.graph,
    "kueue": kueue.kueue,
    "slurm": slurm.tree_conf,
    "slurm-block": slurm.block_conf,
    "slurm-yaml": slurm.topology_yaml,
}
