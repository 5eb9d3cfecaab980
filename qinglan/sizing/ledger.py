"""Bytes by name, in the phases of a stage: what must fit is the largest phase."""

from collections.abc import Sequence
from typing import NamedTuple

from qinglan.sizing.constants import FRAGMENTS, Basis, Constant


class Amount(NamedTuple):
    """Bytes of one thing in a phase."""

    name: str
    bytes: float
    basis: Basis = "counted"


class Phase(NamedTuple):
    """Things that are in memory, or on disk, at the same time."""

    name: str
    amounts: tuple[Amount, ...]

    @property
    def bytes(self) -> float:
        return sum(amount.bytes for amount in self.amounts)


class Need(NamedTuple):
    """A stage's need of one kind of room by phase, and the available room."""

    stage: str
    room: str
    """The place that fills up, such as a card, the host or the scratch volume."""

    phases: tuple[Phase, ...]
    available: float
    """Bytes; 0 where it is not known."""

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.bytes)

    @property
    def fits(self) -> bool:
        return not self.available or self.peak.bytes <= self.available


def phase(name: str, *amounts: Amount) -> Phase:
    """A phase without the amounts of 0 bytes."""
    return Phase(name, tuple(amount for amount in amounts if amount.bytes))


def constant(name: str, value: Constant, times: float = 1.0) -> Amount:
    return Amount(name, value.value * times, value.basis)


def with_fragments(amounts: Sequence[Amount]) -> tuple[Amount, ...]:
    """The amounts, and what an allocator holds beside them."""
    return (*amounts, constant("fragments", FRAGMENTS, sum(amount.bytes for amount in amounts)))
