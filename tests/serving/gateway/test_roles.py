"""Three roles behind one gateway: each is answered by its own model, and the examiner by the judge's without one."""

import asyncio
from pathlib import Path
from typing import Any

from qinglan.llm.client import GatewayClient
from qinglan.llm.config import GatewayConfig, Role
from qinglan.prompts import Message
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from tests.servers.echo_servers import PRICE, EchoBrain, gateway, gateway_config, running

REQUEST: list[Message] = [{"role": "user", "content": "打分"}]


class Named(EchoBrain):
    models: Any = ("echo", "other")


def config(teacher: str, **price: Any) -> GatewayConfig:
    other = {"base_url": f"{teacher}/v1", "model": "other", "price": {**PRICE, **price}, "max_output_tokens": 100}
    return gateway_config(teacher, examiner=other)


def ask_all(settings: GatewayConfig, folder: Path) -> tuple[list[str], dict[str, Any]]:
    roles: tuple[Role, ...] = ("teacher", "judge", "examiner")

    async def run() -> tuple[list[str], dict[str, Any]]:
        async with gateway(settings, folder) as url, GatewayClient(url, "evaluate") as client:
            models = [(await client.ask(role, REQUEST, "r1")).model for role in roles]
            return models, await client.report()

    return asyncio.run(run())


def test_the_examiner_is_a_model_of_its_own_with_its_own_calls_in_the_journal(tmp_path: Path) -> None:
    with running(create_app(Named(), Behaviour())) as teacher:
        models, report = ask_all(config(teacher), tmp_path)

    assert models == ["echo", "echo", "other"]
    assert {row["role"]: row["attempts"] for row in report["by_step"]} == {"teacher": 1, "judge": 0, "examiner": 1}
    assert report["models"]["examiner"] == {"model": "other", "currency": "USD", "typical_seconds": 2.0}


def test_without_an_examiner_the_judges_model_answers_and_the_report_shows_it(tmp_path: Path) -> None:
    with running(create_app(Named(), Behaviour())) as teacher:
        models, report = ask_all(gateway_config(teacher), tmp_path)

    assert models == ["echo"] * 3
    assert report["models"]["examiner"]["model"] == report["models"]["judge"]["model"]
