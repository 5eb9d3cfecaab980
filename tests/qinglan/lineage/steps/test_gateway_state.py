"""KFP's cache may answer for a paid stage as long as the gateway's state is the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from qinglan.errors import OutageError
from qinglan.lineage.steps.step_inputs import read_gateway_state
from qinglan.llm.contract import COMPLETIONS_PATH, ROW_HEADER, STEP_HEADER
from tests.servers.echo_servers import GatewayProcess, Reply, Scripted, completion, gateway_config, running

pytestmark = pytest.mark.slow

BASE = {"tenant_id": "acme", "kb_name": "default", "snapshot": "1" * 64, "passages": 3, "reranker": "2" * 64}


def listing(**changes: Any) -> Scripted:
    return Scripted(Reply(200, orjson.dumps({"knowledge_bases": [BASE | changes]})))


@contextmanager
def gateway(folder: Path, rag: Scripted, *answers: Reply, **changes: Any) -> Iterator[str]:
    with running(Scripted(*answers or (Reply(503, b""),))) as teacher, running(rag) as rag_url:
        process = GatewayProcess(gateway_config(teacher, rag_url, **changes), folder)
        try:
            yield process.url()
        finally:
            process.stop()


def ask(url: str, text: str) -> int:
    body = {"model": "teacher", "messages": [{"role": "user", "content": text}]}
    headers = {STEP_HEADER: "generate", ROW_HEADER: text}
    return httpx.post(f"{url}{COMPLETIONS_PATH}", json=body, headers=headers, trust_env=False).status_code


def test_paid_answers_leave_the_state_as_it_is_and_a_failed_call_does_not(tmp_path: Path) -> None:
    refused = Reply(400, b'{"error": {"message": "no"}}')
    with gateway(tmp_path, listing(), Reply(200, completion("answer")), refused) as url:
        before = read_gateway_state(url)
        assert ask(url, "a") == 200
        assert read_gateway_state(url) == before, "the same run again costs nothing"
        assert ask(url, "b") == 422
        assert read_gateway_state(url) != before, "the next run asks the failed row again"


@pytest.mark.parametrize(
    ("other", "settings"),
    [
        (listing(snapshot="3" * 64), {}),
        (listing(reranker="4" * 64), {}),
        (listing(), {"model": {"model": "other"}}),
    ],
)
def test_another_knowledge_base_reranker_or_model_is_another_state(
    tmp_path: Path, other: Scripted, settings: dict[str, Any]
) -> None:
    states = []
    for name, rag, changes in (("first", listing(), {}), ("second", other, settings), ("third", listing(), {})):
        folder = tmp_path / name
        folder.mkdir()
        with gateway(folder, rag, **changes) as url:
            states.append(read_gateway_state(url))

    assert states[0] == states[2] != states[1]


def test_a_rag_service_that_names_no_knowledge_base_has_no_state_twice(tmp_path: Path) -> None:
    with gateway(tmp_path, Scripted(Reply(404, b""))) as url:
        assert read_gateway_state(url) != read_gateway_state(url)


def test_a_gateway_that_is_away_is_an_outage() -> None:
    with pytest.raises(OutageError, match="does not say what was used"):
        read_gateway_state("http://127.0.0.1:9")
