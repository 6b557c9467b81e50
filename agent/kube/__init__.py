"""The Kubernetes Node: ownership, plan, server-side apply, and the API client.

Labels pass through six types from rendering to the wire:

    Claim     labels/values.py     one label, or the reason for its absence
    Rendered  labels/table.py      all labels of an observation
    Cycle     daemon/observer.py   an observation with its labels and annotation
    Desired   kube/plan.py         labels and annotation that the Node should have
    Plan      kube/plan.py         fields of manager `bwagent` before and after
    Request   kube/answers.py      one server-side apply
"""

MANAGER = "bwagent"  # the field manager of every server-side apply
