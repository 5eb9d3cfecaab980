"""Money that may be spent: reserved at its worst before a call is sent, replaced by what the call cost."""

import asyncio

from qinglan.errors import BudgetError

ROUNDING_ERROR = 1e-9
"""What sums of money leave behind when they are taken apart again is none."""


def fits(cap: float, spent: float, reserved: float, amount: float) -> bool:
    """Whether a call that may cost `amount` could not pass the cap, however the others end."""
    return spent + reserved + amount <= cap


class Budget:
    """Spent and reserved together never pass the cap, however many calls are under way."""

    def __init__(self, cap: float, spent: float = 0.0) -> None:
        self.cap = cap
        self.spent = spent
        self.reserved = 0.0
        self._settled = asyncio.Event()

    async def reserve(self, amount: float) -> None:
        """Hold so much back. Where only others' reservations stand in the way, wait: most cost less in the end."""
        while not fits(self.cap, self.spent, self.reserved, amount):
            if not fits(self.cap, self.spent, 0.0, amount):
                raise BudgetError(
                    f"{self.spent:.4f} of the budget of {self.cap:g} is spent; the next call may cost {amount:.4f}. "
                    "Raise gateway.budget and run again: what was paid for is in the journal and costs nothing."
                )
            await self.settled()
        self.reserved += amount

    async def settled(self) -> None:
        """Wait until a reservation made way."""
        self._settled.clear()
        await self._settled.wait()

    def settle(self, reserved: float, cost: float) -> None:
        """The call has ended: its reservation makes way for what it cost."""
        left = self.reserved - reserved
        self.reserved = left if left > ROUNDING_ERROR else 0.0
        self.spent += cost
        self._settled.set()
