"""The stand-in for a company's RAG service as a process: its token, its path, and what it does not know."""

import subprocess
from pathlib import Path

import httpx
import orjson

from tests.processes.forkserver import GATEWAY, forked
from tests.servers.company_rags import write_passages

BODY = {"query": "虾青素一天吃几次", "tenant_id": "acme", "need": "虾青素一天吃几次", "top_k": 3}


def test_it_starts_as_a_process_and_lets_nobody_in_without_its_token(tmp_path: Path) -> None:
    command = forked(
        "standins.company_rag", "--kb", f"acme={write_passages(tmp_path)}", "--index-root", str(tmp_path / "index"),
        "--port", "0", "--path", "/v2/search", "--token", "t0ken", libraries=GATEWAY,
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            url = orjson.loads(child.stdout.readline())["company_rag"] + "/v2/search"
            stranger = httpx.post(url, json=BODY, trust_env=False)
            friend = httpx.post(url, json=BODY, headers={"Authorization": "Bearer t0ken"}, trust_env=False)
        finally:
            child.terminate()

    assert stranger.status_code == 401
    assert friend.json()["data"]["recall"][0]["id"] == "k1"
