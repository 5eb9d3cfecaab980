"""Questions that nobody has been trained or tested on: the same tenant's world, other conversations."""

from collections.abc import Iterator

from standins.samples.conversations import Turn, conversation_turns
from standins.samples.tenant_content import draw_tenant

UNLIMITED = 10**9


def fresh_turns(tenant: str, seed: int, fresh_seed: int) -> Iterator[Turn]:
    """Of the world that `seed` drew, without end; none about what the locked test asks about."""
    if fresh_seed == seed:
        raise ValueError("fresh questions need a seed of their own")
    every = conversation_turns(tenant, fresh_seed, draw_tenant(tenant, seed), UNLIMITED)
    return (turn for turn in every if turn.split != "test")
