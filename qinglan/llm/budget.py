"""Budget of paid calls: the worst cost is reserved before a call is sent, and replaced by its actual cost."""

import asyncio

from qinglan.errors import BudgetError

ROUNDING_ERROR = 1e-9
"""Amount of money below which a sum counts as 0, because it comes from rounding."""


def fits(cap: float, spent: float, reserved: float, amount: float) -> bool:
    """True if a call of up to `amount` stays within the cap, even if each call under way costs its maximum."""
    return spent + reserved + amount <= cap


class Budget:
    """Counts spent and reserved money. A new reservation must keep their sum within the cap, however many calls are
    under way."""

    def __init__(self, cap: float, spent: float = 0.0) -> None:
        self.cap = cap
        self.spent = spent
        self.reserved = 0.0
        self._settled = asyncio.Event()

    async def reserve(self, amount: float) -> None:
        """Reserve an amount. If only other reservations are in the way, wait for them to end, since most calls cost
        less than was reserved. If the spent money is in the way, raise a BudgetError."""
        while not fits(self.cap, self.spent, self.reserved, amount):
            if not fits(self.cap, self.spent, 0.0, amount):
                raise BudgetError(
                    f"{self.spent:.4f} of the budget of {self.cap:g} is spent; the next call may cost {amount:.4f}. "
                    "Raise gateway.budget and run again: what was paid for is in the journal and costs nothing."
                )
            await self.settled()
        self.reserved += amount

    async def settled(self) -> None:
        # Cleared and awaited without a pause in between, so no settlement can be missed.
        self._settled.clear()
        await self._settled.wait()

    def settle(self, reserved: float, cost: float) -> None:
        """End the reservation of a call, and count the call's actual cost as spent."""
        left = self.reserved - reserved
        self.reserved = left if left > ROUNDING_ERROR else 0.0
        self.spent += cost
        self._settled.set()
