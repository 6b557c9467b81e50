"""The Kubernetes Node: ownership, plan, server-side apply, and the API client.

Labels pass through six types from rendering to the wire:

    Value     labels/table.py      one label, not encoded yet
    Rendered  labels/render.py     all labels of an observation
    Cycle     daemon/observer.py   an observation with its labels and annotation
    Desired   kube/plan.py         labels and annotation that the Node should have
    Plan      kube/plan.py         fields of manager `bwagent` before and after
    Request   kube/answers.py      one server-side apply
"""

import sys
from importlib.util import find_spec
from types import ModuleType

MANAGER = "bwagent"  # the field manager of every server-side apply


def _leave_out_http2() -> None:
    """Keep urllib3 from running `urllib3/http2/__init__.py`, whose switch to HTTP/2 is not used.

    It would load importlib.metadata with zipfile and csv, 0.6 MB of a resident agent. The module
    `urllib3.http2.probe`, which each connection asks, is loaded from the package's folder.
    """
    spec = find_spec("urllib3")
    if spec and spec.submodule_search_locations and "urllib3" not in sys.modules:
        package = ModuleType("urllib3.http2")
        package.__path__ = [f"{folder}/http2" for folder in spec.submodule_search_locations]
        sys.modules[package.__name__] = package


_leave_out_http2()
