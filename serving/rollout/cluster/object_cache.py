"""Cache of the objects that rollouts need, filled by one watch for each kind, so that an idle rollout costs no calls.

A copy in the cache may be old. This costs at most one reconcile, because every write names the version that was read.
Revisions that an InferenceService names but the cache lacks are read from the API server.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from qinglan.errors import OutageError
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.informer import Informer
from serving.rollout.cluster.inference_service import Object

KINDS = ("modelrollouts", "inferenceservices", "revisions")
SERVICE_LABEL = "serving.kserve.io/inferenceservice"
BEGIN_SECONDS = 30.0

Observer = Callable[[str, Object, bool], None]
"""Function that is called with the kind, the changed object, and True if the object was deleted."""


class ObjectCache:
    """Cache of the objects of one namespace."""

    def __init__(self, api: Api, observer: Observer) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        self._deleted: dict[tuple[str, str], str] = {}
        """Uid of the last deleted object, by kind and name."""

        self._observer = observer
        self._informers = {kind: Informer(api, kind, {}, self._handler(kind)) for kind in KINDS}

    def start(self) -> None:
        for informer in self._informers.values():
            informer.start()
        for informer in self._informers.values():
            informer.begun.wait(BEGIN_SECONDS)

    def stop(self) -> None:
        for informer in self._informers.values():
            informer.stop()

    def get(self, kind: str, name: str) -> Object | None:
        """Return the object, or None. Raises an OutageError while the watch fails, because the copy may be old."""
        self.check_watched(kind)
        with self._lock:
            return self._objects[kind].get(name)

    def all(self, kind: str) -> list[Object]:
        with self._lock:
            return list(self._objects[kind].values())

    def revisions(self, service: str) -> dict[str, Object]:
        self.check_watched("revisions")
        metas = [(revision["metadata"], revision) for revision in self.all("revisions")]
        return {
            meta["name"]: revision
            for meta, revision in metas
            if (meta.get("labels") or {}).get(SERVICE_LABEL) == service
        }

    def check_watched(self, kind: str) -> None:
        informer = self._informers[kind]
        trouble = informer.trouble  # read once: the informer's thread may reset it at any time
        if trouble or not informer.begun.is_set():
            why = trouble[1].message if trouble else "not listed yet"
            raise OutageError(f"{kind} cannot be watched: {why}. Check the API server and this account's rights.")

    def put(self, kind: str, thing: Object) -> None:
        """Store the API server's answer to a write of this controller, because the watch may report it later."""
        # Race: the watch may also be faster than the answer. Then its newer copy must stay. An older one would count
        # as the present until something changes again, which may never happen.
        name, uid = thing["metadata"]["name"], thing["metadata"]["uid"]
        with self._lock:
            known = self._objects[kind].get(name)
            if self._deleted.get((kind, name)) == uid or (known is not None and _supersedes(known, thing)):
                return
            self._objects[kind][name] = thing

    def _handler(self, kind: str) -> Callable[[str, Mapping[str, Any]], None]:
        def handle(change: str, thing: Object) -> None:
            name, gone = thing["metadata"]["name"], change == "DELETED"
            with self._lock:
                if gone:  # after a new list without the object, only its name and uid are known
                    self._deleted[kind, name] = thing["metadata"]["uid"]
                    thing = self._objects[kind].pop(name, thing)
                else:
                    thing = self._objects[kind][name] = thing
            self._observer(kind, thing, gone)

        return handle


def _supersedes(known: Object, answer: Object) -> bool:
    """True if the known object is newer than the answer: a newer object, or a later version of the same object."""
    if known["metadata"]["uid"] != answer["metadata"]["uid"]:
        return True
    versions = [str(thing["metadata"]["resourceVersion"]) for thing in (known, answer)]
    # Since Kubernetes 1.35 resourceVersions are promised to compare as numbers; etcd's always did.
    return all(version.isdecimal() for version in versions) and int(versions[0]) > int(versions[1])
