"""The same server before a vLLM: what it sends, what it takes back, and what it says when nobody answers."""

import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.errors import OutageError
from qinglan.rewriter.model import Student
from qinglan.services import free_port
from serving.rewriter.backends import read_completion
from serving.rewriter.protocols import Instance
from tests.serving.persistent_clients import ask_until_nobody_listens
from tests.serving.rewriter.conftest import ASKED, V1, Serve, Served, Vllm, running, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def before(serve: Serve, vllm: Vllm) -> Iterator[Served]:
    """A server before the stand-in, with little patience."""
    with serve("--backend", vllm.url, "--deadline-seconds", "2", "--queue", "2") as served:
        until(lambda: served.http.get("/v2/health/ready").status_code == 200)
        yield served


@pytest.fixture(autouse=True)
def good(vllm: Vllm) -> None:
    vllm.behave()


def test_vllm_gets_the_rendered_prompt_of_training_and_is_asked_greedily(before: Served, vllm: Vllm) -> None:
    student = Student.load(before.folder)

    prediction = before.ask()

    [asked] = vllm.asked()
    assert asked == {
        "model": "rewriter", "prompt": student.render(Instance.model_validate(ASKED)), "temperature": 0,
        "max_tokens": student.card.max_new_tokens,
    }  # fmt: skip
    assert prediction["rewritten_query"] == "虾青素软胶囊 每日服用频次"


def test_tokens_that_vllm_wrote_are_counted_for_each_question(before: Served) -> None:
    def most(tokens: str) -> float:
        return before.counted("qinglan_rewriter_written_tokens_bucket", le=tokens)

    few, some = most("8.0"), most("16.0")

    before.http.post(V1, json={"instances": [ASKED, ASKED]}).raise_for_status()

    assert (most("8.0") - few, most("16.0") - some) == (0, 2), "the stand-in says nine"


@pytest.mark.parametrize(
    ("guard", "faults"),
    [
        ("empty", {"text": " \n"}),
        ("cut", {"finish": "length"}),
        ("too_long", {"text": "虾青素软胶囊每日服用频次与注意事项" * 8}),
        ("history", {"text": "用户正在了解虾青素软胶囊的吃法以及和鱼油软胶囊有什么区别"}),
        ("invented_number", {"text": "虾青素软胶囊 每日３粒"}),
        ("invented_number", {"text": "虾青素软胶囊 每日三粒"}),
    ],
)
def test_a_guarded_rewrite_is_replaced_reported_and_counted(
    before: Served, vllm: Vllm, guard: str, faults: dict[str, Any]
) -> None:
    vllm.behave(**faults)
    names = ("qinglan_rewriter_fallbacks_total", "qinglan_rewriter_guards_total")
    counted = [before.counted(names[0], reason=guard), before.counted(names[1], guard=guard)]

    history = "用户正在了解虾青素软胶囊的吃法以及和鱼油软胶囊有什么区别，还没有下单"
    prediction = before.ask(history_summary=history)

    assert (prediction["rewritten_query"], prediction["fallback"]) == (ASKED["query"], guard)
    assert before.counted(names[0], reason=guard) == counted[0] + 1
    assert before.counted(names[1], guard=guard) == counted[1] + 1
    until(lambda: before.lines()[-1].get("guards", [None])[0] == guard)


@pytest.mark.parametrize(
    ("faults", "status", "outcome", "said"),
    [
        ({"status": 500}, 502, "failed", "refused with 500"),
        ({"status": 400}, 502, "failed", "refused with 400"),
        ({"text": None}, 502, "failed", "no completion"),
        ({"broken": 2}, 502, "failed", "does not answer"),
        ({"seconds": 9}, 504, "late", "No answer within 2 s"),
    ],
)
def test_an_outage_is_an_error_and_never_a_rewrite(
    before: Served, vllm: Vllm, faults: dict[str, Any], status: int, outcome: str, said: str
) -> None:
    vllm.behave(**faults)
    counted = before.counted("qinglan_rewriter_requests_total", outcome=outcome)

    answer = before.http.post(V1, json={"instances": [ASKED]})

    assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text
    assert before.counted("qinglan_rewriter_requests_total", outcome=outcome) == counted + 1
    until(lambda: said in before.lines()[-1].get("why", ""))
    assert before.counted("qinglan_rewriter_under_way") == 0


@pytest.mark.parametrize("content", [b"<html>", b"7", b"{}", b'{"choices": []}', b'{"choices": [{"text": "x"}]}'])
def test_an_answer_without_a_completion_is_an_outage(content: bytes) -> None:
    with pytest.raises(OutageError, match="http://vllm answered with no completion"):
        read_completion(content, "http://vllm")


def test_a_connection_that_broke_once_costs_nobody_an_answer(before: Served, vllm: Vllm) -> None:
    vllm.behave(broken=1)

    assert "fallback" not in before.ask()
    assert len(vllm.asked()) == 2


def test_the_server_is_ready_only_while_its_backend_answers(serve: Serve, tmp_path: Path) -> None:
    with running(tmp_path / "log", "tests.serving.rewriter.standin_vllm") as (_, url):
        vllm = Vllm(url)
        vllm.behave(healthy=False)
        _comes_and_goes(serve, vllm)


def _comes_and_goes(serve: Serve, vllm: Vllm) -> None:
    with serve("--backend", vllm.url) as served:
        assert served.http.get("/v2/health/live").status_code == 200
        assert served.http.get("/v2/health/ready").status_code == 503
        assert served.http.get("/v1/models/rewriter").status_code == 503

        vllm.behave()
        until(lambda: served.http.get("/v2/health/ready").status_code == 200)
        assert len(vllm.asked()) == 1  # warm: it has written something
        assert served.http.get("/v1/models/rewriter").status_code == 200

        vllm.behave(healthy=False)
        until(lambda: served.http.get("/v2/health/ready").status_code == 503)
        assert "fallback" not in served.ask()  # whoever asks all the same is answered if it can be


def test_without_its_backend_a_question_is_a_502_that_says_where_it_looked(serve: Serve) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with serve("--backend", nobody) as served:
        answer = served.http.post(V1, json={"instances": [ASKED]})

        assert answer.status_code == 502
        assert nobody in answer.json()["error"]
        assert served.http.get("/v2/health/ready").status_code == 503


def test_beyond_its_queue_it_refuses_with_when_to_ask_again(before: Served, vllm: Vllm) -> None:
    """128 are at vllm at once, and 2 may wait."""
    vllm.behave(seconds=1.5)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(before.http.post, V1, json={"instances": [ASKED] * 140})  # alone, so it is taken whole
        until(lambda: before.counted("qinglan_rewriter_waiting") == 12)

        second = before.http.post(V1, json={"instances": [ASKED]})

        assert (second.status_code, second.headers["retry-after"]) == (429, "1")
        assert "12 questions wait already, of 2 at most" in second.json()["error"]
        assert first.result().status_code == 504  # two rounds of 1.5 s are more than its two
    assert before.counted("qinglan_rewriter_waiting") == 0
    assert before.counted("qinglan_rewriter_requests_total", outcome="busy") == 1


def test_a_body_that_never_ends_costs_its_sender_the_deadline_and_nobody_else(before: Served) -> None:
    port = before.http.base_url.port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), timeout=120) as slow:
        slow.sendall(f"POST {V1} HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{{".encode())
        started = time.monotonic()
        assert "fallback" not in before.ask()
        said = slow.recv(1000)

    assert said.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - started > 1
    until(lambda: before.lines()[-1]["outcome"] == "hung_up")  # its line may follow its answer


def test_a_client_that_disconnects_is_counted_as_gone_and_timed(before: Served, vllm: Vllm) -> None:
    """As a RAG service that waits no longer: the answer was slow, and nobody got it."""
    port, body = before.http.base_url.port, orjson.dumps({"instances": [ASKED]})
    names = ("requests_total", "seconds_count")
    answered, timed = (before.counted(f"qinglan_rewriter_{name}", protocol="v1") for name in names)
    gone = before.counted("qinglan_rewriter_requests_total", outcome="hung_up")
    vllm.behave(seconds=1.0)
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        head = f"POST {V1} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        client.sendall(head.encode() + b"\r\n\r\n" + body)
        until(lambda: before.counted("qinglan_rewriter_under_way") == 1)
    until(lambda: before.counted("qinglan_rewriter_under_way") == 0)

    assert before.counted("qinglan_rewriter_requests_total", outcome="hung_up") == gone + 1
    assert before.counted("qinglan_rewriter_requests_total", protocol="v1") == answered + 1
    assert before.counted("qinglan_rewriter_seconds_count", protocol="v1") == timed + 1
    last = before.lines()[-1]
    assert (last["outcome"], last["status"], last["questions"]) == ("hung_up", 499, 1)


def test_told_to_stop_it_answers_all_that_it_took_of_clients_that_keep_their_connections(
    serve: Serve, vllm: Vllm
) -> None:
    with serve("--backend", vllm.url) as served, ThreadPoolExecutor(32) as pool:
        until(lambda: served.http.get("/v2/health/ready").status_code == 200)
        vllm.behave(seconds=0.05)
        port, body = served.http.base_url.port, orjson.dumps({"instances": [ASKED]})
        clients = [pool.submit(ask_until_nobody_listens, port, V1, body) for _ in range(32)]
        until(lambda: served.counted("qinglan_rewriter_requests_total", outcome="answered") >= 64)
        served.process.send_signal(signal.SIGTERM)
        answers = [client.result() for client in clients]

        assert served.process.wait(120) == 0
        assert sum(map(len, answers)) >= 64
        assert {answer.status for own in answers for answer in own} == {200}
        assert any(answer.last for own in answers for answer in own)


def test_vllm_that_was_restarted_is_found_again(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> None:
    log = tmp_path_factory.mktemp("restarted")
    with (
        running(log / "a", "tests.serving.rewriter.standin_vllm") as (process, url),
        serve("--backend", url) as served,
    ):
        until(lambda: served.http.get("/v2/health/ready").status_code == 200)
        served.ask()
        process.kill()
        process.wait()
        assert served.http.post(V1, json={"instances": [ASKED]}).status_code == 502
        port = url.rpartition(":")[2]
        with running(log / "b", "tests.serving.rewriter.standin_vllm", port):
            assert "fallback" not in served.ask()
