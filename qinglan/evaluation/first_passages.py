"""Search with rewrites of questions, and score each rewrite 1 if the first passage is relevant, else 0.

    firsts = asyncio.run(first_passages(prompts, [["its rewrite", "another"], ...], gateway_url))
    firsts[0]  # [1.0, 0.0]

An outage of the service is an error, never a 0.
"""

from collections.abc import Sequence

from qinglan.concurrency import map_in_order
from qinglan.rag.client import RagClient
from qinglan.reward.episode import TrainingPrompt, refuse_other_service

ROWS_UNDER_WAY = 32


async def first_passages(
    prompts: Sequence[TrainingPrompt], texts: Sequence[Sequence[str]], gateway_url: str
) -> list[list[float]]:
    """Search with each text of each prompt, with the retrieval settings of the prompt's validation. Returns the score
    of each text; equal texts of a prompt are searched once."""
    async with RagClient.of_gateway(gateway_url) as rag:

        async def ask(at: int) -> list[float]:
            firsts = {text: await _ask(rag, prompts[at], text) for text in dict.fromkeys(texts[at])}
            return [firsts[text] for text in texts[at]]

        return [row async for row in map_in_order(range(len(prompts)), ask, ROWS_UNDER_WAY)]


async def _ask(rag: RagClient, prompt: TrainingPrompt, text: str) -> float:
    if not text.strip():
        return 0.0
    retrieval = prompt.retrieved_with
    data = (await rag.retrieve(retrieval.request(prompt.question, text, prompt.need, prompt.tenant_id))).data
    refuse_other_service(prompt, data)
    hits = retrieval.shown(data)
    return float(bool(hits) and hits[0].id in prompt.relevant)
