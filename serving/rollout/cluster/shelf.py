"""Copies of the objects that rollouts are decided by, kept by one watch of each kind: an idle rollout costs no call.

A copy may be late. No write goes by it unseen: each is held to the version that was read.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from qinglan.errors import OutageError
from qinglan.jobs.api import Api
from qinglan.jobs.mirror import Mirror
from serving.rollout.cluster.reading import Object

KINDS = ("modelrollouts", "inferenceservices", "revisions")
OF_SERVICE = "serving.kserve.io/inferenceservice"
BEGIN_SECONDS = 30.0

Told = Callable[[str, Object, bool], None]
"""Of a kind, of one object of it that changed or went, and whether it is gone."""


class Shelf:
    """One namespace's."""

    def __init__(self, api: Api, told: Told) -> None:
        self._lock = threading.Lock()
        self._things: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        self._deleted: dict[tuple[str, str], str] = {}
        """By kind and name, the uid of the last object that was deleted."""

        self._told = told
        self._mirrors = {kind: Mirror(api, kind, {}, self._hearing(kind)) for kind in KINDS}

    def start(self) -> None:
        for mirror in self._mirrors.values():
            mirror.start()
        for mirror in self._mirrors.values():
            mirror.begun.wait(BEGIN_SECONDS)

    def stop(self) -> None:
        for mirror in self._mirrors.values():
            mirror.stop()

    def get(self, kind: str, name: str) -> Object | None:
        """OutageError where this kind is not heard of: what is here may be long over."""
        self.heard(kind)
        with self._lock:
            return self._things[kind].get(name)

    def all(self, kind: str) -> list[Object]:
        with self._lock:
            return list(self._things[kind].values())

    def revisions(self, service: str) -> dict[str, Object]:
        self.heard("revisions")
        found = [one for one in self.all("revisions") if one["metadata"]["labels"].get(OF_SERVICE) == service]
        return {one["metadata"]["name"]: one for one in found}

    def heard(self, kind: str) -> None:
        mirror = self._mirrors[kind]
        if mirror.trouble or not mirror.begun.is_set():
            why = mirror.trouble[1].message if mirror.trouble else "not listed yet"
            raise OutageError(f"{kind} are not heard of: {why}. Check the API server and this account's rights.")

    def put(self, kind: str, thing: Object) -> None:
        """Take what the API server answered to a write of ours: the watch may report it later.

        On a slow machine the watch may also be faster than the answer. Its newer copy then stays: this one would be
        taken for the present until something changes again, and perhaps nothing ever does.
        """
        name, uid = thing["metadata"]["name"], thing["metadata"]["uid"]
        with self._lock:
            known = self._things[kind].get(name)
            if self._deleted.get((kind, name)) == uid or (known is not None and _supersedes(known, thing)):
                return
            self._things[kind][name] = TRIMMED[kind](thing)

    def _hearing(self, kind: str) -> Callable[[str, Mapping[str, Any]], None]:
        def hear(what: str, thing: Object) -> None:
            name, gone = thing["metadata"]["name"], what == "DELETED"
            with self._lock:
                if gone:  # a list that lacks it tells of its name alone
                    self._deleted[kind, name] = thing["metadata"]["uid"]
                    thing = self._things[kind].pop(name, thing)
                else:
                    thing = self._things[kind][name] = TRIMMED[kind](thing)
            self._told(kind, thing, gone)

        return hear


def _supersedes(known: Object, answer: Object) -> bool:
    """Whether a known object is another than the answer's, made since, or a later version of the same one."""
    if known["metadata"]["uid"] != answer["metadata"]["uid"]:
        return True
    versions = [str(thing["metadata"]["resourceVersion"]) for thing in (known, answer)]
    # Kubernetes promises since 1.35 that these compare as numbers; etcd's always did.
    return all(version.isdecimal() for version in versions) and int(versions[0]) > int(versions[1])


def _without_book(thing: Object) -> Object:
    """Who wrote which field is half of a ModelRollout, and nobody asks."""
    return {**thing, "metadata": {name: one for name, one in thing["metadata"].items() if name != "managedFields"}}


def _service(thing: Object) -> Object:
    """Of the book of edits only who changed the spec, and when."""
    book = [
        {**{name: one.get(name) for name in ("manager", "time", "subresource")}, "fieldsV1": {"f:spec": {}}}
        for one in thing["metadata"].get("managedFields") or ()
        if "f:spec" in (one.get("fieldsV1") or {})
    ]
    return {**thing, "metadata": {**thing["metadata"], "managedFields": book}}


def _revision(thing: Object) -> Object:
    """A revision's pods are half of its size, and only what they fetch matters."""
    meta = thing["metadata"]
    kept = {"name": meta["name"], "labels": meta.get("labels") or {}, "annotations": meta.get("annotations") or {}}
    initialisers = [{"args": one.get("args")} for one in thing.get("spec", {}).get("initContainers") or ()]
    conditions = thing.get("status", {}).get("conditions") or []
    return {"metadata": kept, "spec": {"initContainers": initialisers}, "status": {"conditions": conditions}}


TRIMMED: Mapping[str, Callable[[Object], Object]] = {
    "modelrollouts": _without_book, "inferenceservices": _service, "revisions": _revision,
}  # fmt: skip
