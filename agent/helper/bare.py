"""Packages whose `__init__` is not run: what it imports for everybody costs more than the module that is wanted.

The law of this module: for a process of its own only, before anything of the package is imported. Submodules are found
as ever; who asks the package itself for a name does not get it.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from types import ModuleType


def leave_out(*packages: str) -> None:
    """Have these packages, parents first, be no more than the place of their submodules; ImportError: one is not there.

    One that is loaded already stays as it is.
    """
    for name in packages:
        parent = sys.modules.get(name.rpartition(".")[0])
        spec = PathFinder.find_spec(name, parent.__path__ if parent else None)
        if spec is None or spec.submodule_search_locations is None:
            raise ImportError(f"no package {name}")
        package = sys.modules.setdefault(name, ModuleType(name))
        package.__spec__, package.__path__ = spec, spec.submodule_search_locations
