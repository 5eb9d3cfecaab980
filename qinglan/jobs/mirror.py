"""A copy of one kind of object, kept by one list and one watch, however many ask of it.

The watch goes on where it stopped; where that is too long ago, everything is listed again.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from qinglan.jobs.api import Api
from qinglan.jobs.refusals import Refusal

WATCH_SECONDS = 120
"""How long one call watches; the server ends it then, and the next goes on."""

QUIET_SECONDS = WATCH_SECONDS + 15.0
"""Longer silence is a connection that nobody holds any more."""

PAGE = 200
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
GONE = 410

Change = Callable[[str, Mapping[str, Any]], None]
"""Told of "ADDED", "MODIFIED" or "DELETED", and the object."""


class Mirror:
    """Feeds `change` from a thread of its own, until it is stopped."""

    def __init__(self, api: Api, resource: str, query: Mapping[str, str], change: Change) -> None:
        self.api, self.resource, self.query, self.change = api, resource, query, change
        self.trouble: tuple[float, Refusal] | None = None
        """Since when nothing is heard, and why."""

        self.begun = threading.Event()
        """Set once everything was listed and is watched, or the first try was refused."""

        self._version, self._pause = "", FIRST_PAUSE
        self._known: dict[str, Mapping[str, Any]] = {}
        self._stopped = threading.Event()
        self._open: Any = None
        self._thread = threading.Thread(target=self._run, name=f"mirror of {resource}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        response = self._open
        if response is not None:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # it ended by itself just now
                response.shutdown()  # or the thread would read on until the server ends the watch
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch()
                self._stopped.wait(FIRST_PAUSE)
            except Refusal as refusal:
                self._refused(refusal)

    def _well(self) -> None:
        self.trouble, self._pause = None, FIRST_PAUSE
        self.begun.set()

    def _refused(self, refusal: Refusal) -> None:
        if refusal.status == GONE:
            self._version = ""
            return
        self.trouble = (self.trouble[0] if self.trouble else time.monotonic(), refusal)
        self.begun.set()
        self._stopped.wait(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _list(self) -> None:
        found: dict[str, Mapping[str, Any]] = {}
        query = {**self.query, "limit": str(PAGE)}
        while True:
            page = self.api.all(self.resource, query)
            found |= {one["metadata"]["name"]: one for one in page["items"]}
            if not (more := page["metadata"].get("continue")):
                break
            query["continue"] = more
        for name in self._known.keys() - found.keys():
            self.change("DELETED", self._known[name])
        for one in found.values():
            self.change("MODIFIED", one)
        self._known = {name: _key(one) for name, one in found.items()}
        self._version = str(page["metadata"]["resourceVersion"])

    def _watch(self) -> None:
        """Hear changes until the call ends."""
        query = {
            **self.query, "watch": "true", "resourceVersion": self._version, "timeoutSeconds": str(WATCH_SECONDS),
            "allowWatchBookmarks": "true",
        }  # fmt: skip
        with self.api.opened("GET", self.resource, query=query, seconds=(5.0, QUIET_SECONDS)) as response:
            self._open = response
            self._well()
            try:
                for event in self._events(response):
                    if event["type"] == "ERROR":
                        raise Refusal("GET", self.resource, event["object"].get("code", GONE), "the watch ended")
                    self._heard(event["type"], event["object"])
                    self._version = event["object"]["metadata"]["resourceVersion"]
            finally:
                self._open = None

    def _heard(self, what: str, thing: Mapping[str, Any]) -> None:
        name = thing["metadata"].get("name", "")
        if what == "BOOKMARK":
            return
        if what == "DELETED":
            self._known.pop(name, None)
        else:
            self._known[name] = _key(thing)
        self.change(what, thing)

    def _events(self, response: Any) -> Iterator[dict[str, Any]]:
        if self._stopped.is_set():  # just before there was something to shut
            return
        for lines in self.api.batches(response, self.resource):
            with contextlib.suppress(orjson.JSONDecodeError):  # cut off in its middle: it is heard again from there
                yield from [orjson.loads(line) for line in lines]


def _key(thing: Mapping[str, Any]) -> dict[str, Any]:
    """Enough to tell of its deletion, should it be missing from the next list."""
    meta = thing["metadata"]
    kept = {name: meta[name] for name in ("name", "uid", "labels", "ownerReferences") if name in meta}
    return {"metadata": kept, "involvedObject": thing.get("involvedObject", {})}
