"""Ask a paid teacher for the rewrites of a benchmark's queries."""

import asyncio
from collections.abc import Sequence

from qinglan.concurrency import map_in_order
from qinglan.errors import RowError
from qinglan.llm.client import GatewayClient
from qinglan.prompts import SystemPrompt, teacher_messages
from qinglan.rows.rows import Question
from qinglan.terminal.progress import progress


def collect_rewrites(name: str, rows: Sequence[Question], system_prompt: SystemPrompt, gateway_url: str) -> list[str]:
    """The teacher's rewrites with the prompts of the generate stage, in the rows' order; empty if it gave none."""

    async def collect() -> list[str]:
        rewrites: list[str] = []
        async with GatewayClient(gateway_url, "compare") as gateway:

            async def write(row: Question) -> str:
                try:
                    answer = await gateway.ask("teacher", teacher_messages(row, system_prompt), row=row.id)
                    return answer.line()
                except RowError:
                    return ""

            with progress(f"teacher {name}", len(rows)) as tick:
                async for rewrite in map_in_order(rows, write, 32):
                    rewrites.append(rewrite)
                    tick()
        return rewrites

    return asyncio.run(collect())
