"""The Kubernetes Node: ownership, change, server-side apply, and the API client.

Labels pass through six types from rendering to the wire:

    Value     labels/table.py      one label, not encoded yet
    Rendered  labels/render.py     all labels of an observation
    Cycle     daemon/observer.py   an observation with its labels and annotation
    Desired   kube/change.py       labels and annotation that the Node should have
    Change    kube/change.py       fields of manager `bwagent` before and after
    Request   kube/answers.py      one server-side apply
"""

MANAGER = "bwagent"  # the field manager of every server-side apply
