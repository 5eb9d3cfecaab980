"""Findings of an audit: the state of each thing, and the verdict over all of them."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

State = Literal["verified", "attested", "missing", "altered", "untrusted"]
"""attested: its digest is signed for, its bytes are not at hand. untrusted: signed by no key that counts."""

WORST_FIRST: tuple[State, ...] = ("altered", "untrusted", "missing", "attested", "verified")
FAULTS = WORST_FIRST[:3]
GRAVE = WORST_FIRST[:2]
"""States that no override covers."""

AuditVerdict = Literal["intact", "incomplete", "altered"]


class Finding(NamedTuple):
    what: str
    """A name that a person knows: `model/model.safetensors`, `statement of sft`."""

    state: State
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.state}: {self.why}"


def worst_state(states: Iterable[State]) -> State:
    """The one that counts for all; verified where there is none."""
    return min(states, key=WORST_FIRST.index, default="verified")


def verdict_of(states: Iterable[State]) -> AuditVerdict:
    state = worst_state(states)
    return "altered" if state in GRAVE else "incomplete" if state == "missing" else "intact"
