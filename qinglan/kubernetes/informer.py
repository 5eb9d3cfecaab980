"""Report every change of one kind of object: list the objects once, then watch them.

    informer = Informer(api, "pods", {"labelSelector": "app=x"}, lambda change, pod: print(change, pod))
    informer.start()

A watch that ended continues from its last resourceVersion; if this version is too old, everything is listed again.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from qinglan.kubernetes.api_errors import ApiError
from qinglan.kubernetes.client import Api

WATCH_SECONDS = 120
"""Seconds after which the server ends a watch; the next watch continues from its last version."""

QUIET_SECONDS = WATCH_SECONDS + 15.0
"""Seconds without data after which a connection counts as dead."""

PAGE = 200
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
GONE = 410

Handler = Callable[[str, Mapping[str, Any]], None]
"""Function that is called with "ADDED", "MODIFIED" or "DELETED", and the object."""


class Informer:
    """Calls `handler` for every change, in a separate thread, until stop() is called."""

    def __init__(self, api: Api, resource: str, query: Mapping[str, str], handler: Handler) -> None:
        self.api, self.resource, self.query, self.handler = api, resource, query, handler
        self.trouble: tuple[float, ApiError] | None = None
        """Monotonic time at which the calls began to fail, and the newest error; None while calls succeed."""

        self.begun = threading.Event()
        """Event that is set once everything is listed and watched, or the first attempt has failed."""

        self._version, self._pause = "", FIRST_PAUSE
        self._known: dict[str, Mapping[str, Any]] = {}
        self._stopped = threading.Event()
        self._open: Any = None
        self._thread = threading.Thread(target=self._run, name=f"informer of {resource}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        response = self._open
        if response is not None:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # it has just ended by itself
                response.shutdown()  # or the thread would read on until the server ends the watch
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch()
                self._stopped.wait(FIRST_PAUSE)
            except ApiError as refusal:
                self._refused(refusal)
            except Exception as error:  # if the thread ended, its users would wait for ever
                self._version = ""
                self._refused(ApiError("GET", self.resource, 0, f"{type(error).__name__}: {error}"))

    def _refused(self, refusal: ApiError) -> None:
        if refusal.status == GONE:
            # https://kubernetes.io/docs/reference/using-api/api-concepts/#410-gone-responses
            self._version = ""
            self._stopped.wait(FIRST_PAUSE)  # avoids listing without pause if the server expires versions at once
            return
        self.trouble = (self.trouble[0] if self.trouble else time.monotonic(), refusal)
        self.begun.set()
        self._stopped.wait(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _list(self) -> None:
        listed: dict[str, Mapping[str, Any]] = {}
        query = {**self.query, "limit": str(PAGE)}
        while True:
            page = self.api.all(self.resource, query)
            listed |= {item["metadata"]["name"]: item for item in page["items"]}
            if not (more := page["metadata"].get("continue")):
                break
            query["continue"] = more
        # Objects that were deleted while no watch was open are missing from the new list.
        for name in self._known.keys() - listed.keys():
            self.handler("DELETED", self._known[name])
        for item in listed.values():
            self.handler("MODIFIED", item)
        self._known = {name: _key(item) for name, item in listed.items()}
        self._version = str(page["metadata"]["resourceVersion"])

    def _watch(self) -> None:
        """Watch from the last version, and handle changes until the server ends the watch."""
        query = {
            **self.query,
            "watch": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_SECONDS),
            "allowWatchBookmarks": "true",
        }
        with self.api.opened("GET", self.resource, query=query, seconds=(5.0, QUIET_SECONDS)) as response:
            self._open = response
            self.trouble, self._pause = None, FIRST_PAUSE
            self.begun.set()
            try:
                for event in self._events(response):
                    if event["type"] == "ERROR":
                        raise ApiError("GET", self.resource, event["object"].get("code", GONE), "the watch ended")
                    self._apply(event["type"], event["object"])
                    self._version = event["object"]["metadata"]["resourceVersion"]
            finally:
                self._open = None

    def _apply(self, change: str, thing: Mapping[str, Any]) -> None:
        name = thing["metadata"].get("name", "")
        # A bookmark only brings a newer version to continue from.
        # https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks
        if change == "BOOKMARK":
            return
        if change == "DELETED":
            self._known.pop(name, None)
        else:
            self._known[name] = _key(thing)
        self.handler(change, thing)

    def _events(self, response: Any) -> Iterator[dict[str, Any]]:
        if self._stopped.is_set():  # stopped before there was a response to shut down
            return
        for lines in self.api.batches(response, self.resource):
            with contextlib.suppress(orjson.JSONDecodeError):  # cut off in the middle; the next watch repeats it
                yield from [orjson.loads(line) for line in lines]


def _key(thing: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the fields of an object that `_list` needs to report the object's deletion."""
    meta = thing["metadata"]
    metadata = {name: meta[name] for name in ("name", "uid", "labels", "ownerReferences") if name in meta}
    return {"metadata": metadata, "involvedObject": thing.get("involvedObject", {})}
