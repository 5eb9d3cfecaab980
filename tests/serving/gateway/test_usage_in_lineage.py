"""A stage's statement names its paid answers by digest and money, without any text."""

import asyncio
from hashlib import sha256
from pathlib import Path

import httpx
import orjson
import pytest

from qinglan.errors import OutageError
from qinglan.lineage.steps.record import StepReport
from qinglan.lineage.steps.step_inputs import add_gateway_usage
from qinglan.llm.client import Answer, GatewayClient
from qinglan.llm.paid.journal_reader import read_answers
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from tests.servers.echo_servers import EchoBrain, GatewayProcess, gateway_config, running


def step() -> StepReport:
    return StepReport({}, [], [], {})


async def ask(url: str, stage: str, texts: list[str]) -> list[Answer]:
    async with GatewayClient(url, stage) as client:
        return [await client.ask("teacher", [{"role": "user", "content": text}], row=text) for text in texts]


def test_a_step_names_its_paid_answers_and_prices_by_digest(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        gateway = GatewayProcess(gateway_config(teacher, teacher), tmp_path)
        url = gateway.url()
        asyncio.run(ask(url, "generate", ["张三 一", "张三 二"]))
        asyncio.run(ask(url, "validate", ["张三 二", "张三 三"]))
        generate, validate, nobody = step(), step(), step()
        for item, stage in ((generate, "generate"), (validate, "validate"), (nobody, "sft")):
            add_gateway_usage(item, stage, url)
        assert gateway.stop() == 0

    lines = [orjson.loads(line) for line in generate.papers["paid-generate.jsonl"].splitlines()]
    assert [line["call"] for line in lines] == sorted(line["call"] for line in lines)
    assert {line["call"] for line in lines} < {answer.call for answer in read_answers(tmp_path / "journal.sqlite")}
    assert all(len(line["answer"]) == 64 for line in lines)
    shared = {line["call"] for line in lines} & {
        orjson.loads(line)["call"] for line in validate.papers["paid-validate.jsonl"].splitlines()
    }
    assert len(shared) == 1, "an answer that was paid for earlier is used again, and named again"
    papers = b"".join(generate.papers.values())
    assert "张三".encode() not in papers and "回声".encode() not in papers
    used = {part.name: part for part in generate.used}
    assert used["journal"].digest == sha256(generate.papers["paid-generate.jsonl"]).hexdigest()
    assert (used["journal"].about["answers"], used["journal"].is_external) == (2, True)
    assert orjson.loads(generate.papers["prices-generate.json"])["teacher"]["price"]["currency"]
    assert nobody.used == [], "who asked for nothing has paid for nothing"


def test_a_gateway_that_does_not_say_is_an_outage(tmp_path: Path) -> None:
    with pytest.raises(OutageError, match=r"does not say what was used"):
        add_gateway_usage(step(), "generate", "http://127.0.0.1:9")


def test_a_rag_service_without_a_list_of_knowledge_bases_is_left_out(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        gateway = GatewayProcess(gateway_config(teacher, teacher), tmp_path)
        url, item = gateway.url(), step()
        assert httpx.get(f"{url}/api/knowledge_bases", trust_env=False).status_code == 404
        add_gateway_usage(item, "generate", url)
        assert gateway.stop() == 0

    assert item.used == []
