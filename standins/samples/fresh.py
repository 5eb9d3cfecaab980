"""Questions that nobody has been trained or tested on: the same tenant's world, other conversations."""

from collections.abc import Iterator

from standins.samples.conversations import Turn, turns
from standins.samples.world import draw

WITHOUT_END = 10**9


def fresh_turns(tenant: str, seed: int, fresh_seed: int) -> Iterator[Turn]:
    """Of the world that `seed` drew, without end; none about what the locked test asks about."""
    if fresh_seed == seed:
        raise ValueError("fresh questions need a seed of their own")
    every = turns(tenant, fresh_seed, draw(tenant, seed), WITHOUT_END)
    return (turn for turn in every if turn.split != "test")
