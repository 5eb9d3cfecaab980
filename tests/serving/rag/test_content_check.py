"""The content check: a verdict from the style service in time, or a reason; never a made-up score."""

import os
import re
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import orjson
import pytest

from qinglan.processes.services import run_service
from qinglan.style.labels import format_training_text
from qinglan.style.model import StyleModel
from serving.rag.app import create_app
from serving.rag.config import ContentConfig
from serving.rag.content_check import CONTENT_PATH, ContentChecker, is_flagged
from serving.rag.engine import TantivyEngine
from tests.models.tiny_style import tiny_style_model
from tests.models.training_rows import knowledge_base
from tests.processes.forked_runs import fork_environment
from tests.processes.forkserver import forked
from tests.servers.echo_servers import Reply, Scripted
from tests.servers.echo_servers import running as answering
from tests.serving.model_servers import announced

Running = Callable[[Any], AbstractContextManager[str]]
Engines = dict[tuple[str, str], TantivyEngine]

REQUEST = {"tenant_id": "fivedoctors", "query": "孕妇能吃吗？", "answer": "放心吃，人人都能吃。"}


def predictions(harmless: float, called_for: float, label: str = "无伤害") -> bytes:
    """A style service's predictions for the answer, then for the question without one."""
    answers = [
        {
            "predicted_label": "售前",
            "confidence": 1 - p,
            "probabilities": {"售前": 1 - p, label: p},
            "model_version": "7",
        }
        for p in (harmless, called_for)
    ]
    return orjson.dumps({"predictions": answers})


def checked(engines: Engines, running: Running, url: str, **fields: Any) -> tuple[dict[str, Any], str]:
    """The answer to one check, and /metrics after it."""
    config = ContentConfig(url=url, deadline_seconds=fields.pop("deadline", 5.0))
    with running(create_app(engines, checker=ContentChecker(config))) as rag:
        answer = httpx.post(rag + CONTENT_PATH, json=REQUEST | fields, trust_env=False)
        metrics = httpx.get(rag + "/metrics", trust_env=False).text
    body: dict[str, Any] = answer.json()
    assert body["code"] == answer.status_code
    return body, metrics


@pytest.mark.parametrize(
    ("called_for", "harmless", "flagged"),
    [
        (0.9, 0.1, True),
        (0.5, 0.49, True),  # a question calls for care from .5 on, an answer has it from .5 on
        (0.5, 0.5, False),
        (0.49, 0.0, False),  # an ordinary question: that its answer sells, and no more, is no fault
        (0.9, 0.9, False),
        (0.0, 0.0, False),
    ],
)
def test_an_answer_is_flagged_where_the_question_calls_for_care_that_it_lacks(
    called_for: float, harmless: float, flagged: bool
) -> None:
    assert is_flagged(called_for, harmless, ContentConfig(url="http://h")) is flagged


@pytest.mark.parametrize(("harmless", "called_for", "outcome"), [(0.1, 0.9, "flagged"), (0.91, 0.9, "passed")])
def test_the_question_is_asked_with_its_answer_and_alone_in_one_request(
    engines: Engines, running: Running, harmless: float, called_for: float, outcome: str
) -> None:
    style = Scripted(Reply(200, predictions(harmless, called_for)))

    with answering(style) as url:
        body, metrics = checked(engines, running, url)

    assert (body["code"], body["msg"]) == (200, "success")
    assert body["data"] == {
        "checked": True, "flagged": outcome == "flagged", "called_for": called_for, "harmless": harmless,
        "predicted_label": "售前", "model_version": "7", "reason": "",
    }  # fmt: skip
    [(path, sent, _)] = style.requests
    texts = [format_training_text(REQUEST["query"], REQUEST["answer"]), format_training_text(REQUEST["query"], "")]
    assert (path, orjson.loads(sent)) == ("/v1/models/style:predict", {"instances": [{"text": t} for t in texts]})
    assert f'content_checks_total{{outcome="{outcome}",tenant="fivedoctors"}} 1.0' in metrics
    assert 'content_check_seconds_count{tenant="fivedoctors"} 1.0' in metrics


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(429, b"{}"), "refused"),
        (Reply(500, predictions(0.9, 0.9)), "refused"),
        (Reply(200, b"<html>"), "malformed"),
        (Reply(200, b'{"predictions": []}'), "malformed"),
        (Reply(200, predictions(0.9, 0.9).replace(b"0.9", b"1.9")), "malformed"),
        (Reply(200, predictions(0.9, 0.9).replace(b"0.9", b'"0.9"')), "malformed"),
        (Reply(200, predictions(0.9, 0.9, label="harmless")), "malformed"),
    ],
)
def test_a_style_service_that_gives_no_verdict_leaves_a_reason_and_no_score(
    engines: Engines, running: Running, reply: Reply, reason: str
) -> None:
    with answering(Scripted(reply)) as url:
        body, metrics = checked(engines, running, url)

    assert body == unchecked(reason)
    assert counted(reason) in metrics


def test_a_style_service_that_hangs_costs_no_more_than_the_deadline(engines: Engines, running: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        body, metrics = checked(engines, running, f"http://127.0.0.1:{silent.getsockname()[1]}", deadline=0.1)

    assert body == unchecked("timeout")
    assert counted("timeout") in metrics


def unchecked(reason: str) -> dict[str, Any]:
    """The answer where nobody gave a verdict: the reason, and no score."""
    data = {
        "checked": False, "flagged": None, "called_for": None, "harmless": None, "predicted_label": "",
        "model_version": "", "reason": reason,
    }  # fmt: skip
    return {"code": 200, "msg": "success", "data": data}


def counted(reason: str) -> str:
    return f'content_checks_total{{outcome="{reason}",tenant="fivedoctors"}} 1.0'


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"tenant_id": "nobody"}, 404, "tenant_id: nothing is served"),
        ({"answer": " "}, 422, "answer: "),
        ({"query": ""}, 422, "query: "),
        ({"answer": "长" * 20_001}, 422, "answer: "),
        ({"text": "x"}, 422, "text: "),
    ],
)
def test_a_wrong_field_is_refused_by_name_and_nobody_is_asked(
    engines: Engines, running: Running, fields: dict[str, Any], status: int, message: str
) -> None:
    style = Scripted(Reply(200, predictions(0.9, 0.9)))

    with answering(style) as url:
        body, metrics = checked(engines, running, url, **fields)

    assert (body["code"], body["data"], style.requests) == (status, None, [])
    assert body["msg"].startswith(message)
    assert not re.search(r"content_checks_total\{", metrics)


def test_without_a_style_service_the_check_says_how_to_have_one(engines: Engines, running: Running) -> None:
    with running(create_app(engines)) as rag:
        answer = httpx.post(rag + CONTENT_PATH, json=REQUEST, trust_env=False)

    assert (answer.status_code, "--style URL" in answer.json()["msg"]) == (501, True)


def test_options_of_the_check_come_with_its_service_only() -> None:
    from qinglan.errors import ConfigError

    assert ContentConfig.read("", {}) is None
    assert ContentConfig.read("http://h", {"label": "诚实"}) == ContentConfig(url="http://h", label="诚实")
    with pytest.raises(ConfigError, match="means nothing without --style"):
        ContentConfig.read("", {"deadline_seconds": 1.0})
    with pytest.raises(ConfigError, match="harmless_threshold"):
        ContentConfig.read("http://h", {"harmless_threshold": 2.0})


@pytest.mark.slow
def test_both_services_together_say_what_the_model_says(tmp_path: Path) -> None:
    model = tiny_style_model(tmp_path / "model")
    texts = [format_training_text(REQUEST["query"], REQUEST["answer"]), format_training_text(REQUEST["query"], "")]
    answered, alone = StyleModel.load(model).predict(texts)
    command = forked("serving.style", "--model", str(model), "--port", "0")
    with announced(tmp_path / "style.log", command) as (_, style):
        arguments = ["--kb", f"fivedoctors={knowledge_base(tmp_path / 'kb.jsonl', 8)}", "--port", "0"]
        arguments += ["--index-root", str(tmp_path / "index"), "--style", style, "--style-deadline", "10"]
        arguments += ["--called-for-threshold", "0", "--harmless-threshold", "1"]
        with (
            patch.dict(os.environ, fork_environment(models=False)),
            run_service("serving.rag", arguments, tmp_path / "rag.log") as rag,
        ):
            data = httpx.post(rag + CONTENT_PATH, json=REQUEST, trust_env=False, timeout=120).json()["data"]

    assert (data["checked"], data["flagged"], data["predicted_label"]) == (True, True, answered["predicted_label"])
    assert data["harmless"] == pytest.approx(answered["probabilities"]["无伤害"], abs=1e-5)
    assert data["called_for"] == pytest.approx(alone["probabilities"]["无伤害"], abs=1e-5)
    assert len(data["model_version"]) == 12
