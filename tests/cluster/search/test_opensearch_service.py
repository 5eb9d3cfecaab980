"""Two RAG services over one real OpenSearch node: equal answers, each of one snapshot; an outage is said."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from qinglan.files.files import sha256_file
from qinglan.processes.services import run_service
from qinglan.rag.contract import KNOWLEDGE_BASES_PATH, RAG_PATH
from tests.cluster.search.opensearch import Node
from tests.cluster.search.search_world import aliased, load_now, many, write_kb
from tests.cluster.waiting import until

COUNT = 300


@contextmanager
def replicas(search: Node, tenant: str, folder: Path, count: int = 2) -> Iterator[list[httpx.Client]]:
    """Real processes, each with a client of its own."""
    arguments = ["--kb", tenant, "--opensearch", search.url, "--opensearch-deadline", "20", "--port", "0"]
    with ExitStack() as stack:
        logs = [folder / f"rag{number}.log" for number in range(count)]
        urls = [stack.enter_context(run_service("serving.rag", arguments, log)) for log in logs]
        yield [stack.enter_context(httpx.Client(base_url=url, timeout=30, trust_env=False)) for url in urls]


def ask(client: httpx.Client, tenant: str, query: str, **fields: Any) -> httpx.Response:
    body = {"query": query, "rewritten_query": query, "tenant_id": tenant, "score_threshold": 0.0, **fields}
    return client.post(RAG_PATH, json=body)


def ready(client: httpx.Client) -> bool:
    return client.get("/readyz").status_code == 200


def test_replicas_are_ready_once_it_is_loaded_and_answer_alike(search: Node, tmp_path: Path) -> None:
    kb = write_kb(tmp_path / "kb.jsonl", many(count=COUNT))
    with replicas(search, "alike", tmp_path) as (first_replica, other):
        before = [client.get("/readyz") for client in (first_replica, other)]
        unserved = ask(first_replica, "alike", "甲款产品 7号")
        load_now(search, kb, "alike")
        until(lambda: ready(first_replica) and ready(other), "both are ready")
        queries = [f"甲款产品 {number}号" for number in range(0, COUNT, 7)] + ["每日服用几次"]
        answers = [
            [ask(client, "alike", query, need="服用一次") for query in queries] for client in (first_replica, other)
        ]
        stranger = ask(first_replica, "nobody", "甲款产品")
        known = first_replica.get(KNOWLEDGE_BASES_PATH).json()["knowledge_bases"]

    assert [answer.status_code for answer in before] == [503, 503]
    assert unserved.status_code == 503
    assert [answer.json() for answer in answers[0]] == [answer.json() for answer in answers[1]]
    first = answers[0][1].json()["data"]
    assert first["recall"][0]["id"] == "甲7"
    assert first["snapshot"] == sha256_file(kb)
    assert stranger.status_code == 404
    assert [(kb["tenant_id"], kb["passages"]) for kb in known] == [("alike", COUNT)]


def test_while_the_alias_is_switched_every_answer_is_of_one_snapshot(search: Node, tmp_path: Path) -> None:
    """Twice in a row, so that what a replica searches is deleted before it looks at the alias again."""
    files = {mark: write_kb(tmp_path / f"{mark}.jsonl", many(mark, count=COUNT)) for mark in "甲乙丙"}
    marks = {sha256_file(path): mark for mark, path in files.items()}
    load_now(search, files["甲"], "switched")
    over = threading.Event()
    answers: list[httpx.Response] = []

    def keep_asking(client: httpx.Client) -> None:
        number = 0
        while not over.is_set():
            number += 1
            answers.append(ask(client, "switched", f"款产品 {number % COUNT}号 每日服用", need=f"{number} 一次"))

    with replicas(search, "switched", tmp_path) as clients, ThreadPoolExecutor(2) as pool:
        until(lambda: all(map(ready, clients)), "both are ready")
        pending = [pool.submit(keep_asking, client) for client in clients]
        try:
            until(lambda: len(answers) > 20, "some were asked before")
            load_now(search, files["乙"], "switched")
            load_now(search, files["丙"], "switched")
            last = sha256_file(files["丙"])
            until(lambda: all(newest(client) == last for client in clients), "both search the last one")
        finally:
            over.set()
        for future in pending:
            future.result()

    assert [answer.text for answer in answers if answer.status_code != 200] == []
    result = [answer.json()["data"] for answer in answers]
    for data in result:
        assert {recall["id"][0] for recall in data["recall"]} == {marks[data["snapshot"]]}
    assert {marks[data["snapshot"]] for data in result} >= {"甲", "丙"}
    assert len(aliased(search, "switched")) == 1


def newest(client: httpx.Client) -> str:
    return str(ask(client, "switched", "产品").json()["data"]["snapshot"])


def test_a_node_killed_in_the_middle_of_queries_is_said_and_taken_up_again(search: Node, tmp_path: Path) -> None:
    load_now(search, write_kb(tmp_path / "kb.jsonl", many(count=COUNT)), "outage")
    with replicas(search, "outage", tmp_path, count=1) as (client,):
        until(lambda: ready(client), "it is ready")
        numbers = iter(range(1_000_000))  # each asks something new: what was found before is kept
        assert ask(client, "outage", f"甲款产品 {next(numbers)}号").status_code == 200
        stop = threading.Timer(0.3, search.kill)
        stop.start()
        observed: list[httpx.Response] = []

        def refused() -> bool:
            observed.append(ask(client, "outage", f"甲款产品 {next(numbers)}号"))
            return observed[-1].status_code != 200

        until(refused, "the outage is seen")
        stop.join()
        away = [ask(client, "outage", f"甲款产品 {next(numbers)}号") for _ in range(30)]
        spared = [ask(client, "outage", f"甲款产品 {next(numbers)}号") for _ in range(30)]
        counted = client.get("/metrics").text
        alive = client.get("/healthz").status_code
        search.start()
        until(lambda: ask(client, "outage", "甲款产品 7号 服用").status_code == 200, "it answers again")
        after = [ask(client, "outage", f"甲款产品 {number}号 每日") for number in range(20)]

    assert all(answer.status_code == 200 and answer.json()["data"]["recall"] for answer in observed[:-1])
    for answer in [observed[-1], *away, *spared]:
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "2"
        assert answer.json()["data"] is None
        assert "The search engine gives no answer" in answer.json()["msg"]
    assert any("(open)" in answer.json()["msg"] for answer in spared), "the breaker spares the wait"
    assert 'qinglan_rag_engine_outages_total{reason="unreachable"}' in counted
    assert 'qinglan_rag_engine_outages_total{reason="open"}' in counted
    assert alive == 200, "an outage of the engine is no reason to restart the service"
    assert [answer.json()["data"]["recall"][0]["id"] for answer in after] == [f"甲{number}" for number in range(20)]
