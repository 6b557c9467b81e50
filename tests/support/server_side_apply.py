"""A test double of the API server with the semantics of server-side apply (KEP-555,
structured-merge-diff), at the level of HTTP status and body.

A field is owned by managers. An apply owns exactly the fields that it carries, gives up all others,
and conflicts where another manager owns a field with another value, unless it is forced. An update
takes the fields that it changes. `trouble` may answer before the server, like a network, a load
balancer or a proxy; `race` runs once before the next apply; `refuses` are admission policies and
webhooks that deny, `stores` what a mutating webhook makes of a value.

The simulation asks it by `handle`; tests of one negotiation, and of a running agent, call it, which
returns what the agent's session makes of the response.

Invariant: of the agent, this module has the manager's name only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Key = tuple[str, str]


MANAGER = "bwagent"
LABELS, ANNOTATIONS = "labels", "annotations"


class Reply(NamedTuple):
    """An HTTP response."""

    status: int
    body: bytes
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


class Write(NamedTuple):
    """An apply by the agent that was accepted: what was there before, and after."""

    time: float
    before: dict[Key, str]
    after: dict[Key, str]
    foreign: frozenset[Key]  # owned by others before


def status(
    code: int, message: str, reason: str = "", retry: int | None = None, **details: Any
) -> Reply:
    """Return a meta/v1 Status."""
    document = {
        "kind": "Status",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    headers = {"Content-Type": "application/json"} | (
        {} if retry is None else {"Retry-After": str(retry)}
    )
    return Reply(code, json.dumps(document | {"details": details}).encode(), headers)


@dataclass
class ApiServer:
    """An API server with one Node."""

    now: Callable[[], float] = lambda: 0.0
    fields: dict[Key, str] = field(default_factory=dict)
    owners: dict[tuple[str, str], set[Key]] = field(
        default_factory=dict
    )  # (manager, operation) -> fields
    uid: int = 1
    exists: bool = True
    trouble: Callable[[Mapping[str, Any]], Reply | None] = lambda _request: None
    race: Callable[[], None] | None = None
    # of a request that changes these fields
    refuses: list[Callable[[Collection[Key]], Reply | None]] = field(default_factory=list)
    stores: Callable[[Key, str], str | None] = lambda _key, value: value
    boot_id: str | None = None  # as the kubelet reports it
    on_write: Callable[[Write], None] = lambda _write: None
    changes: int = 0

    def handle(self, request: Mapping[str, Any]) -> Reply:
        """Answer a request of the agent."""
        if self.race and request["operation"] == "apply":
            race, self.race = self.race, None
            race()
        return self.trouble(request) or self.answer(request)

    def answer(self, request: Mapping[str, Any]) -> Reply:
        """Perform a request without regard to `trouble`."""
        if request["operation"] == "get":
            found = self._node(is_whole=request.get("whole", False))
            return found if self.exists else status(404, 'nodes "n1" not found', "NotFound")
        return self._apply(request["body"]["metadata"], force=request["force"])

    def update(self, manager: str, changes: Mapping[Key, str | None]) -> None:
        """Set and remove fields as another manager, without server-side apply."""
        mine = self.owners.setdefault((manager, "Update"), set())
        self.changes += 1
        for key, value in changes.items():
            if self.fields.get(key) == value:
                continue
            for fields in self.owners.values():
                fields.discard(key)
            if value is None:
                self.fields.pop(key, None)
            else:
                self.fields[key] = value
                mine.add(key)

    def co_apply(self, prefix: str, fields: Mapping[Key, str]) -> None:
        """Make these all fields under a prefix, as another process of the agent's manager."""
        mine = self.owners.setdefault((MANAGER, "Apply"), set())
        for key in [key for key in mine if key[1].startswith(f"{prefix}/")]:
            mine.discard(key)
            self.fields.pop(key, None)
        self.fields = {**self.fields, **fields}
        mine.update(fields)
        self.changes += 1

    @property
    def version(self) -> str:
        """The resourceVersion; a kubelet writes the status every five minutes."""
        return f"{self.uid}{self.changes:06}{int(self.now() // 300):06}"

    def recreate(self) -> None:
        """Create the Node again, without labels or annotations."""
        self.uid += 1
        self.exists = True
        self.fields, self.owners = {}, {}

    def ours(self) -> set[Key]:
        return self.owners.get((MANAGER, "Apply"), set())

    def values(self, manager: str, operation: str, kind: str = LABELS) -> dict[str, str]:
        """Return the labels, or the annotations, of a manager."""
        mine = self.owners.get((manager, operation), set())
        return {key[1]: self.fields[key] for key in sorted(mine) if key[0] == kind}

    def hold(
        self, manager: str, operation: str, values: Mapping[str, str], kind: str = LABELS
    ) -> None:
        """Make these all labels, or all annotations, of a manager.

        Another manager keeps what has its value.
        """
        mine = self.owners.setdefault((manager, operation), set())
        for key in [key for key in mine if key[0] == kind]:
            mine.discard(key)
            self.fields.pop(key, None)
        held = {(kind, name): value for name, value in values.items()}
        changed = {key for key, value in held.items() if self.fields.get(key) != value}
        for fields in self.owners.values():
            fields.difference_update(changed)
        self.fields |= held
        mine.update(held)
        self.changes += 1

    def others(self, key: Key) -> list[str]:
        """Return the other managers of a field."""
        return [
            manager
            for (manager, _), keys in self.owners.items()
            if key in keys and manager != MANAGER
        ]

    def _apply(self, metadata: Mapping[str, Any], *, force: bool) -> Reply:
        if refusal := self._mismatch(metadata["uid"], metadata.get("resourceVersion")):
            return refusal
        wanted = {
            (kind, key): value
            for kind in ("labels", "annotations")
            for key, value in metadata.get(kind, {}).items()
        }
        clashes = {
            key: self.others(key)
            for key, value in wanted.items()
            if self.fields.get(key, value) != value
        }
        clashes = {key: managers for key, managers in clashes.items() if managers}
        if clashes and not force:
            return _conflict(clashes)
        after = self._after(wanted)
        either = self.fields.keys() | after.keys()
        changed = [key for key in either if self.fields.get(key) != after.get(key)]
        if refusal := next(filter(None, (refuse(changed) for refuse in self.refuses)), None):
            return refusal
        stored = {key: self.stores(key, value) for key, value in wanted.items()}
        wanted = {key: value for key, value in stored.items() if value is not None}
        self._accept(wanted, self._after(wanted), clashes)
        return self._node()

    def _mismatch(self, uid: str, version: str | None) -> Reply | None:
        if not self.exists:
            return status(
                409, f'on nodes "n1": uid mismatch: {uid}, no existing object was found', "Conflict"
            )
        if version not in (None, self.version):
            return status(409, 'on nodes "n1": the object has been modified', "Conflict")
        if uid != f"u-{self.uid}":
            causes = [
                {
                    "reason": "FieldValueInvalid",
                    "field": "metadata.uid",
                    "message": "field is immutable",
                }
            ]
            return status(422, 'Node "n1" is invalid: metadata.uid', "Invalid", causes=causes)
        return None

    def _after(self, wanted: Mapping[Key, str]) -> dict[Key, str]:
        given_up = {key for key in self.ours() - wanted.keys() if not self.others(key)}
        return {key: value for key, value in self.fields.items() if key not in given_up} | dict(
            wanted
        )

    def _accept(
        self, wanted: Mapping[Key, str], after: dict[Key, str], clashes: Mapping[Key, list[str]]
    ) -> None:
        foreign = frozenset(key for key in self.fields if self.others(key))
        write = Write(self.now(), self.fields, after, foreign)
        for (manager, _), keys in self.owners.items():
            if manager != MANAGER:
                keys.difference_update(clashes)
        self.owners[MANAGER, "Apply"] = set(wanted)
        self.fields = after
        self.changes += 1
        self.on_write(write)

    def _node(self, *, is_whole: bool = False) -> Reply:
        metadata: dict[str, Any] = {
            "name": "n1",
            "uid": f"u-{self.uid}",
            "resourceVersion": self.version,
            "labels": {},
            "annotations": {},
        }
        for (kind, key), value in self.fields.items():
            metadata[kind][key] = value
        metadata["managedFields"] = [
            {
                "manager": manager,
                "operation": operation,
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": _fields(keys)},
            }
            for (manager, operation), keys in self.owners.items()
            if keys
        ]
        node: dict[str, Any] = {"kind": "Node", "apiVersion": "v1", "metadata": metadata}
        if self.boot_id and is_whole:
            node["status"] = {"nodeInfo": {"bootID": self.boot_id}}
        return Reply(200, json.dumps(node).encode())


def _fields(keys: set[Key]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, key in keys:
        found.setdefault(f"f:{kind}", {".": {}})[f"f:{key}"] = {}
    return found


def _conflict(clashes: Mapping[Key, list[str]]) -> Reply:
    causes = [
        {"reason": "FieldManagerConflict", "field": f".metadata.{kind}.{key}",
         "message": f'conflict with "{managers[0]}" using v1'}
        for (kind, key), managers in clashes.items()
    ]  # fmt: skip
    return status(409, f"Apply failed with {len(causes)} conflicts", "Conflict", causes=causes)
