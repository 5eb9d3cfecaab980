"""New questions that are in no training and no test, from other conversations about the same tenant's content."""

from collections.abc import Iterator

from standins.samples.conversations import Turn, conversation_turns
from standins.samples.tenant_content import draw_tenant

UNLIMITED = 10**9


def fresh_turns(tenant: str, seed: int, fresh_seed: int) -> Iterator[Turn]:
    """Yield endless new turns about the content that `seed` has drawn, without the subjects of the test split."""
    if fresh_seed == seed:
        raise ValueError("fresh questions need a seed of their own")
    every = conversation_turns(tenant, fresh_seed, draw_tenant(tenant, seed), UNLIMITED)
    return (turn for turn in every if turn.split != "test")
