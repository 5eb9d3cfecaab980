"""Findings of an audit: the state of each checked thing, and the verdict over all findings."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

State = Literal["verified", "attested", "missing", "altered", "untrusted"]
"""attested: a trusted key signed the digest, but the bytes are not here. untrusted: no trusted key signed it."""

WORST_FIRST: tuple[State, ...] = ("altered", "untrusted", "missing", "attested", "verified")
FAULTS = WORST_FIRST[:3]
GRAVE = WORST_FIRST[:2]
"""States that an override of the deploy gate cannot cover."""

AuditVerdict = Literal["intact", "incomplete", "altered"]


class Finding(NamedTuple):
    what: str
    """Name of the checked thing, such as `model/model.safetensors` or `statement of sft`."""

    state: State
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.state}: {self.why}"


def worst_state(states: Iterable[State]) -> State:
    return min(states, key=WORST_FIRST.index, default="verified")


def verdict_of(states: Iterable[State]) -> AuditVerdict:
    state = worst_state(states)
    if state in GRAVE:
        return "altered"
    return "incomplete" if state == "missing" else "intact"
