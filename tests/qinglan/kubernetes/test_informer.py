"""A watch that ends in the middle of a line loses nothing but that line, which comes again."""

from typing import Any

from qinglan.kubernetes.informer import Informer


class CutOff:
    def batches(self, response: Any, resource: str) -> list[list[bytes]]:
        return [[b'{"type":"ADDED"}', b'{"type":"MODIFIED"}'], [b'{"type":"DEL']]


def test_half_a_line_at_the_end_of_a_watch_is_no_event_and_ends_nobody() -> None:
    informer = Informer(CutOff(), "pods", {}, lambda what, thing: None)  # type: ignore[arg-type]

    assert [event["type"] for event in informer._events(None)] == ["ADDED", "MODIFIED"]
