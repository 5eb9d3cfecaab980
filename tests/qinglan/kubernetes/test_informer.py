"""An informer goes on after any answer of the server, and says what is wrong."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from qinglan.kubernetes.informer import Informer


class CutOff:
    def batches(self, response: Any, resource: str) -> list[list[bytes]]:
        return [[b'{"type":"ADDED"}', b'{"type":"MODIFIED"}'], [b'{"type":"DEL']]


def test_half_a_line_at_the_end_of_a_watch_is_no_event_and_ends_nobody() -> None:
    informer = Informer(CutOff(), "pods", {}, lambda what, thing: None)  # type: ignore[arg-type]

    assert [event["type"] for event in informer._events(None)] == ["ADDED", "MODIFIED"]


class Strange:
    """A server whose first list has no version, as a proxy's page of its own may look."""

    def __init__(self) -> None:
        self.lists: list[dict[str, Any]] = [
            {"items": [], "metadata": {}},
            {"items": [{"metadata": {"name": "a"}}], "metadata": {}},
        ]
        self.ended = threading.Event()

    @contextmanager
    def opened(self, *_: Any, **__: Any) -> Iterator[None]:
        """A watch that begins when the test is over."""
        self.ended.wait(60)
        yield

    def batches(self, response: Any, resource: str) -> list[list[bytes]]:
        return []

    def all(self, resource: str, query: Any) -> Any:
        return self.lists.pop(0) if len(self.lists) > 1 else {**self.lists[0], "metadata": {"resourceVersion": "1"}}


def test_an_answer_of_another_form_is_trouble_and_ends_no_thread() -> None:
    listed = threading.Event()
    server = Strange()
    informer = Informer(server, "pods", {}, lambda what, thing: listed.set())  # type: ignore[arg-type]

    informer.start()
    try:
        assert informer.begun.wait(60) and informer.trouble is not None
        assert "KeyError: 'resourceVersion'" in informer.trouble[1].message
        assert listed.wait(60), "it lists again"
    finally:
        server.ended.set()
        informer.stop()
