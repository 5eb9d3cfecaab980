"""Questions of no training and no test: the same tenant's world, other conversations."""

from collections.abc import Iterator

from standins.samples.conversations import Turn, conversation_turns
from standins.samples.tenant_content import draw_tenant

UNLIMITED = 10**9


def fresh_turns(tenant: str, seed: int, fresh_seed: int) -> Iterator[Turn]:
    """Endless new turns from the world that `seed` drew; none asks about a subject of the locked test."""
    if fresh_seed == seed:
        raise ValueError("fresh questions need a seed of their own")
    every = conversation_turns(tenant, fresh_seed, draw_tenant(tenant, seed), UNLIMITED)
    return (turn for turn in every if turn.split != "test")
