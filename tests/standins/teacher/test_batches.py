"""The stand-in's batches, as the official client sees them."""

import asyncio
from typing import Any

import openai
import orjson

from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from tests.servers.echo_servers import EchoBrain, running

ROWS = 12


def file_of(rows: int, **body: Any) -> bytes:
    body_of_request = {"model": "echo", "messages": [{"role": "user", "content": "问"}], **body}
    return b"".join(
        orjson.dumps({"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": body_of_request})
        + b"\n"
        for n in range(rows)
    )


def run_batch(behaviour: Behaviour, content: bytes, cancel: bool = False) -> tuple[Any, list[Any], list[Any]]:
    """The batch as it ended, the lines of its answers and those of its errors."""

    async def lines(client: openai.AsyncOpenAI, name: str | None) -> list[Any]:
        if not name:
            return []
        text = (await client.files.content(name)).text
        return [orjson.loads(line) if line.endswith("}") else line for line in text.split("\n") if line]

    async def run(url: str) -> tuple[Any, list[Any], list[Any]]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            file = await client.files.create(file=("in.jsonl", content), purpose="batch")
            batch = await client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"k": "v"}
            )
            assert batch.status == "validating"
            if cancel:
                assert (await client.batches.cancel(batch.id)).status == "cancelling"
            while batch.status not in ("completed", "failed", "expired", "cancelled"):
                await asyncio.sleep(0.02)
                batch = await client.batches.retrieve(batch.id)
            assert [batch.metadata async for batch in client.batches.list()] == [{"k": "v"}]
            return batch, await lines(client, batch.output_file_id), await lines(client, batch.error_file_id)

    with running(create_app(EchoBrain(), behaviour)) as url:
        return asyncio.run(run(url))


def test_every_row_is_answered_out_of_order_with_its_usage() -> None:
    batch, good, bad = run_batch(Behaviour(seed=3), file_of(ROWS))
    assert (batch.status, batch.request_counts.completed, bad) == ("completed", ROWS, [])
    keys = [line["custom_id"] for line in good]
    assert sorted(keys) == sorted(f"r{n}" for n in range(ROWS)) != keys
    bodies = [line["response"]["body"] for line in good]
    assert {body["choices"][0]["message"]["content"] for body in bodies} == {"回声 问"}
    assert all(body["usage"]["total_tokens"] > 0 for body in bodies)


def test_a_model_that_is_not_there_fails_its_rows_and_not_the_batch() -> None:
    batch, good, bad = run_batch(Behaviour(), file_of(2, model="gpt"))
    assert (batch.status, good, [line["response"]["status_code"] for line in bad]) == ("completed", [], [400, 400])
