"""Adds up the bytes that each phase of a stage needs. The largest phase must fit."""

from collections.abc import Sequence
from typing import NamedTuple

from qinglan.sizing.constants import FRAGMENTS, Basis, Constant


class Amount(NamedTuple):
    """Bytes that one thing, such as the weights, takes in a phase."""

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
    """Bytes that a stage needs of one kind of memory or disk, by phase, and the bytes available."""

    stage: str
    room: str
    """Name of the memory or disk, such as a card, the host or the scratch volume."""

    phases: tuple[Phase, ...]
    available: float
    """Bytes available; 0 if unknown."""

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.bytes)

    @property
    def fits(self) -> bool:
        return not self.available or self.peak.bytes <= self.available


def phase(name: str, *amounts: Amount) -> Phase:
    """Create a phase of these amounts. Amounts of 0 bytes are left out."""
    return Phase(name, tuple(amount for amount in amounts if amount.bytes))


def constant(name: str, value: Constant, times: float = 1.0) -> Amount:
    return Amount(name, value.value * times, value.basis)


def with_fragments(amounts: Sequence[Amount]) -> tuple[Amount, ...]:
    """Return the amounts, and one more for the memory that an allocator holds in addition and cannot use."""
    return (*amounts, constant("fragments", FRAGMENTS, sum(amount.bytes for amount in amounts)))
