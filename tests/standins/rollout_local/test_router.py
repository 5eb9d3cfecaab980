"""The router in front of real servers: the model of each user, and the users of each failure."""

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from standins.rollout_local.router import Backend, Backends, Router, routes_to_canary

pytestmark = pytest.mark.slow

V1 = "/v1/models/rewriter:predict"
PATIENT, SHORT = 60.0, 1.0
"""Deadlines in seconds: one that no slow machine reaches, and one for models that never answer."""


class Model:
    """Answers with its name; or with another status, or late, or not at all."""

    def __init__(self, name: str) -> None:
        self.name, self.status, self.seconds, self.requests = name, 200, 0.0, list[str]()
        self.free = threading.Event()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                model.requests.append(f"{self.path} {body.decode()} {self.headers['x-request-id']}")
                model.free.wait(model.seconds)
                if model.free.is_set() or model.status == 0:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                content = model.name.encode()
                self.send_response(model.status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 500

            def handle_error(self, *_: Any) -> None:
                """A caller that went away is what these tests are about."""

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait_for(self, count: int) -> None:
        while len(self.requests) < count:
            time.sleep(0.01)

    def backend(self, percent: int) -> Backend:
        return Backend(self.name, self.name, f"http://127.0.0.1:{self.server.server_address[1]}", percent)


@contextmanager
def models() -> Iterator[tuple[Model, Model]]:
    both = Model("stable"), Model("canary")
    try:
        yield both
    finally:
        for item in both:
            item.free.set()  # whoever still waits hears nothing any more
            item.server.shutdown()
            item.server.server_close()


@pytest.fixture
def two() -> Iterator[tuple[Model, Model]]:
    with models() as both:
        yield both


def ask(
    ways: Backends, number: int, path: str = V1, deadline: float = PATIENT
) -> tuple[list[httpx.Response], dict[str, int]]:
    """So many at once, each with an id of its own; the answers, and what the router has counted."""

    async def ask_all() -> tuple[list[httpx.Response], dict[str, int]]:
        router = Router(deadline)
        router.set_backends(ways)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(router.app), base_url="http://router") as http:
            answers = await asyncio.gather(
                *(http.post(path, content=b"{}", headers={"x-request-id": f"id-{at}"}) for at in range(number))
            )
            counted = dict(_counted((await http.get("/metrics")).text))
        await router.aclose()
        return answers, counted

    return asyncio.run(ask_all())


def _counted(text: str) -> Iterator[tuple[str, int]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.value and not sample.name.endswith("_created"):
                yield " ".join([sample.labels["version"], sample.labels.get("outcome", "repeats")]), int(sample.value)


def count_answers(answers: list[httpx.Response]) -> Counter[tuple[int, str]]:
    return Counter((answer.status_code, answer.text) for answer in answers)


def test_a_share_of_the_requests_goes_to_the_canary_and_each_is_counted_once(two: tuple[Model, Model]) -> None:
    stable, canary = two
    answers, counted = ask(Backends(stable.backend(70), canary.backend(30)), 200)

    to_canary = count_answers(answers)[200, "canary"]
    assert to_canary == sum(routes_to_canary(f"id-{at}", 30) for at in range(200)) and 40 <= to_canary <= 80
    assert counted == {"stable answered": 200 - to_canary, "canary answered": to_canary}


def test_a_user_keeps_its_route_and_a_larger_share_only_adds_users() -> None:
    ids = [f"user-{number}" for number in range(2000)]
    at = {percent: {user for user in ids if routes_to_canary(user, percent)} for percent in (0, 5, 20, 50, 100)}

    assert at[0] == set() and at[100] == set(ids)
    assert at[5] < at[20] < at[50]
    assert all(abs(len(at[percent]) / 20 - percent) < 4 for percent in at)


@pytest.mark.parametrize(
    ("status", "seconds", "outcome"),
    [(500, 0.0, "failed"), (503, 0.0, "failed"), (0, 0.0, "failed"), (429, 0.0, "busy"), (504, 0.0, "late"),
     (200, 60.0, "late"), (400, 0.0, "failed")],
)  # fmt: skip
def test_a_failure_of_the_canary_is_answered_by_the_stable_model_and_counted(
    two: tuple[Model, Model], status: int, seconds: float, outcome: str
) -> None:
    stable, canary = two
    canary.status, canary.seconds = status, seconds
    answers, counted = ask(
        Backends(stable.backend(0), canary.backend(100)), 5, deadline=10 * SHORT if seconds else PATIENT
    )

    assert count_answers(answers) == {(200, "stable"): 5}
    assert counted == {f"canary {outcome}": 5, "canary repeats": 5}, "and the second chance is not the stable model's"


def test_a_canary_whose_server_is_away_costs_no_user_an_answer(two: tuple[Model, Model]) -> None:
    stable, canary = two
    for url in ("", "http://127.0.0.1:9"):
        answers, counted = ask(Backends(stable.backend(0), canary.backend(100)._replace(url=url)), 3)
        assert count_answers(answers) == {(200, "stable"): 3} and counted["canary failed"] == 3


def test_a_question_that_both_refuse_is_nobodys_failure(two: tuple[Model, Model]) -> None:
    stable, canary = two
    stable.status = canary.status = 400
    answers, counted = ask(Backends(stable.backend(0), canary.backend(100)), 4)

    assert count_answers(answers) == {(400, "stable"): 4} and counted == {"canary refused": 4, "canary repeats": 4}


def test_a_failure_of_the_stable_model_is_passed_on_and_never_sent_to_the_canary(two: tuple[Model, Model]) -> None:
    stable, canary = two
    stable.status = 500
    answers, counted = ask(Backends(stable.backend(100), canary.backend(0)), 4)

    assert count_answers(answers) == {(500, "stable"): 4} and counted == {"stable failed": 4}
    assert not canary.requests


@pytest.mark.parametrize(("seconds", "url", "status"), [(60.0, None, 504), (0.0, "http://127.0.0.1:9", 502)])
def test_a_stable_model_that_is_gone_is_an_error_in_words(
    two: tuple[Model, Model], seconds: float, url: str | None, status: int
) -> None:
    stable, _ = two
    stable.seconds = seconds
    route = stable.backend(100)
    deadline = SHORT if seconds else PATIENT
    [answer], _ = ask(Backends(route if url is None else route._replace(url=url)), 1, deadline=deadline)

    assert answer.status_code == status and "The model" in answer.json()["error"]


def test_requests_that_are_no_question_go_to_the_stable_model_and_are_not_counted(two: tuple[Model, Model]) -> None:
    stable, canary = two
    answers, counted = ask(Backends(stable.backend(0), canary.backend(100)), 1, path="/v2/models/rewriter/ready?a=1")

    assert count_answers(answers) == {(200, "stable"): 1} and counted == {}
    assert stable.requests == ["/v2/models/rewriter/ready?a=1 {} id-0"], "as it was sent"


def test_a_server_is_drained_when_its_last_answer_is_there(two: tuple[Model, Model]) -> None:
    stable, canary = two
    stable.seconds = 0.5

    async def drained() -> tuple[bool, list[httpx.Response]]:
        router = Router(PATIENT)
        router.set_backends(Backends(stable.backend(100)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(router.app), base_url="http://router") as http:
            under_way = [asyncio.create_task(http.post(V1, content=b"{}")) for _ in range(5)]
            await asyncio.to_thread(stable.wait_for, 5)
            router.set_backends(Backends(canary.backend(100)))
            draining = asyncio.create_task(router.wait_until_idle("stable"))
            after = await http.post(V1, content=b"{}")
            early = draining.done()
            await draining
            answers = [task.result() for task in under_way if task.done()] + await asyncio.gather(*under_way)
        await router.aclose()
        return early, [after, *answers]

    early, answers = asyncio.run(drained())
    assert not early and count_answers(answers)[200, "canary"] == 1
    assert {answer.text for answer in answers[1:]} == {"stable"} and len(stable.requests) == 5
