"""An admission policy that refuses every change of one Node."""

from __future__ import annotations

MESSAGE = "no labels here"
POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: refuses-{node}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [UPDATE]
        resources: [nodes]
        resourceNames: [{node}]
  validations:
    - {{expression: "false", message: {message}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: refuses-{node}}}
spec: {{policyName: refuses-{node}, validationActions: [Deny]}}
"""


def refusing(node: str) -> str:
    """Return the manifests of the policy for a Node; a fresh policy takes a moment."""
    return POLICY.format(node=node, message=MESSAGE)
