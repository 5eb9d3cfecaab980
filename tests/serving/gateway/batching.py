"""A stage in small that asks by batch, and the settings that make a day a moment."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from qinglan.llm.client import Answer, GatewayClient, PlannedRequest
from qinglan.llm.config import GatewayConfig
from tests.echo import gateway, gateway_config

BATCH = {"gather_seconds": 0.05, "poll_seconds": 0.05}
Asked = Answer | BaseException


def messages(row: str) -> list[Any]:
    """What a row asks; rows that differ after a slash ask the same."""
    return [{"role": "user", "content": f"问题 {row.split('/')[0]}"}]


def batched(teacher: str, batch: dict[str, Any] | None = None, **changes: Any) -> GatewayConfig:
    """A gateway whose teacher is asked by batch."""
    return gateway_config(teacher, model={"batch": {**BATCH, **(batch or {})}}, **changes)


async def ask_rows(url: str, rows: list[str], step: str = "generate") -> list[Asked]:
    """Say what will be asked, wait for the batches, then ask row by row."""
    async with GatewayClient(url, step, back_within=120.0) as client:
        await client.ahead(lambda: (PlannedRequest("teacher", row, messages(row)) for row in rows))
        asks = (client.ask("teacher", messages(row), row=row) for row in rows)
        answers = await asyncio.gather(*asks, return_exceptions=True)
        await client.exported("artifact")
        return list(answers)


def run_rows(config: GatewayConfig, folder: Path, rows: list[str]) -> tuple[list[Asked], dict[str, Any]]:
    async def run() -> tuple[list[Asked], dict[str, Any]]:
        async with gateway(config, folder) as url:
            answers = await ask_rows(url, rows)
            async with GatewayClient(url, "report") as client:
                return answers, await client.report()

    return asyncio.run(run())


def stats(teacher: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{teacher}/stats", trust_env=False).json()
    return found


def texts(answers: list[Asked]) -> list[str]:
    return [answer.text if isinstance(answer, Answer) else repr(answer) for answer in answers]


def echoes(rows: list[str]) -> list[str]:
    return [f"回声 {messages(row)[0]['content']}" for row in rows]
