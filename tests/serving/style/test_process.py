"""The style service as a process: under load it refuses in time, told to stop it answers first."""

import signal
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest

from qinglan.style.model import StyleModel
from tests.serving.model_servers import Serve, until
from tests.serving.persistent_clients import ask_until_nobody_listens

pytestmark = pytest.mark.slow

V1 = "/v1/models/style:predict"
LONG = [{"text": f"{number}请按标签服用。" * 100} for number in range(256)]


def test_beyond_its_queue_it_refuses_with_when_to_ask_again(serve: Serve) -> None:
    with serve("--queue", "1", "--name", "tone") as served, ThreadPoolExecutor(1) as pool:
        path = "/v1/models/tone:predict"
        first = pool.submit(served.http.post, path, json={"instances": LONG})  # alone, so it is taken whole
        until(lambda: served.counted("qinglan_style_texts_waiting") >= 1, 120)

        second = served.http.post(path, json={"instances": LONG[:1]})

        assert (second.status_code, second.headers["retry-after"]) == (429, "1")
        assert "wait already, of 1 at most" in second.json()["error"]
        assert len(first.result().json()["predictions"]) == 256
        assert served.http.post(path, json={"instances": LONG[:1]}).status_code == 200
        assert served.counted("qinglan_style_requests_total", outcome="busy") == 1


def test_told_to_stop_it_answers_all_that_it_took_of_clients_that_keep_their_connections(serve: Serve) -> None:
    with serve() as served, ThreadPoolExecutor(32) as pool:
        port = served.http.base_url.port
        bodies = [orjson.dumps({"instances": [text]}) for text in LONG[:32]]
        clients = [pool.submit(ask_until_nobody_listens, port, V1, body) for body in bodies]
        until(lambda: served.counted("qinglan_style_requests_total", outcome="answered") >= 64, 120)
        served.process.send_signal(signal.SIGTERM)
        answers = [client.result() for client in clients]

        assert served.process.wait(120) == 0
        expected = StyleModel.load(served.folder).predict([text["text"] for text in LONG[:32]])
        assert sum(map(len, answers)) >= 64
        assert any(answer.last for local in answers for answer in local)
        for local, right in zip(answers, expected, strict=True):
            for answer in local:
                assert answer.status == 200
                message = orjson.loads(answer.body)["predictions"][0]["confidence"]
                assert message == pytest.approx(right["confidence"], abs=1e-5)
