"""The served student: three protocols over a real socket, one answer, written by the code that evaluation uses."""

import shutil
from pathlib import Path
from typing import Any

import openai
import pytest

from qinglan.files.digests import digest
from qinglan.prompts import Question, student_messages
from qinglan.rewriter.card import read_card, write_card
from qinglan.rewriter.model import Student
from serving.rewriter.protocols import Instance
from tests.models.tiny_rewriter import SYSTEM, TAUGHT, tiny_model
from tests.serving.model_servers import CHAT, REQUEST, V1, V2, Serve, Served, until

pytestmark = pytest.mark.slow
SECRET = "密语"
JSON = {"content-type": "application/json"}


def tensor(name: str, texts: list[Any], **changes: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "BYTES", "shape": [len(texts)], "data": texts, **changes}


def question(served: Served, query: str) -> list[dict[str, str]]:
    """The messages that training would have shown."""
    system = read_card(served.folder).system_prompts["fivedoctors"]
    return [
        dict(student_message.items()) for student_message in student_messages(Question("fivedoctors", query), system)
    ]


def client(served: Served) -> openai.OpenAI:
    inner = openai.DefaultHttpxClient(trust_env=False)
    return openai.OpenAI(
        base_url=f"{served.http.base_url}/openai/v1", api_key="none", http_client=inner, max_retries=0
    )


def test_three_protocols_give_what_evaluation_would_have_measured(served: Served) -> None:
    queries = list(TAUGHT)
    requests = [{"query": query, "tenant_id": "fivedoctors"} for query in queries]
    written = [
        item.text for item in Student.load(served.folder).write([Instance.model_validate(item) for item in requests])
    ]

    first = served.http.post(V1, json={"instances": requests}).json()["predictions"]
    inputs = [tensor("query", queries), tensor("tenant_id", ["fivedoctors"] * 4)]
    second = served.http.post(V2, json={"inputs": inputs}).json()
    third = [
        served.http.post(CHAT, json={"model": "rewriter", "messages": question(served, query)}) for query in queries
    ]

    assert [item["rewritten_query"] for item in first] == written == list(TAUGHT.values())
    assert second["outputs"][0]["data"] == written
    assert second["outputs"][1] == tensor("fallback", [""] * 4) | {"parameters": None}
    assert [item.json()["choices"][0]["message"]["content"] for item in third] == written
    versions = {
        second["model_version"],
        *(item["model_version"] for item in first),
        *(item.json()["model"] for item in third),
    }
    assert versions == {digest(served.folder)[:12]}
    assert not any("fallback" in item for item in first)


def test_a_long_conversation_is_answered_without_its_oldest_turns(serve: Serve, folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    write_card(model, read_card(folder).model_copy(update={"max_prompt_tokens": 120}))
    turns = "\n".join(f"用户：我们谈到了第{at}件事" for at in range(200))
    requested = Question("fivedoctors", "一天吃几次", "", turns)
    student = Student.load(model)
    shown = student.prompt(requested)
    assert shown.trimmed and shown.tokens <= 120 and "第199件事" in shown.text

    with serve(model=model) as served:
        messages = [dict(item.items()) for item in student_messages(requested, SYSTEM)]
        first = served.ask(query=requested.question, history_summary=turns)
        second = served.http.post(CHAT, json={"model": "rewriter", "messages": messages}).json()
        refused = served.http.post(V1, json={"instances": [{"query": "几次" * 600, "tenant_id": "fivedoctors"}]})

        [written] = student.write([requested])
        assert second["usage"]["prompt_tokens"] == written.prompt_tokens == shown.tokens
        assert first["rewritten_query"] == second["choices"][0]["message"]["content"]
        assert served.counted("qinglan_rewriter_trimmed_prompts_total") == 2
        assert served.counted("qinglan_rewriter_tokens_total", kind="prompt") == 2 * shown.tokens
        assert [line["trimmed"] for line in served.lines() if "trimmed" in line] == [1, 1]
        assert refused.status_code == 400 and "tokens without any history; the model reads" in refused.text


def test_openais_own_client_reads_the_answer_whole_and_as_a_stream(served: Served) -> None:
    query, written = next(iter(TAUGHT.items()))
    messages: Any = question(served, query)
    with client(served) as api:
        whole = api.chat.completions.create(model="rewriter", messages=messages, temperature=0, max_tokens=64)
        chunks = list(
            api.chat.completions.create(
                model="rewriter", messages=messages, stream=True, stream_options={"include_usage": True}
            )
        )
        listed = [item.id for item in api.models.list()]

    assert whole.choices[0].message.content == written
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == written
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert whole.usage is not None and chunks[-1].usage == whole.usage
    assert whole.usage.completion_tokens > 0
    assert listed == ["rewriter"]


def test_a_chat_that_is_not_the_training_prompt_is_refused_in_openais_envelope(served: Served) -> None:
    system, user = question(served, "一天吃几次")
    for messages in (
        [user], [system], [system, user, user], [{**system, "content": SECRET}, user],
        [system, {**user, "content": SECRET}], [system, {**user, "content": user["content"] + " "}],
        [system, {**user, "content": "请改写。\n" + user["content"]}],
    ):  # fmt: skip
        with client(served) as api, pytest.raises(openai.BadRequestError) as refused:
            api.chat.completions.create(model="rewriter", messages=messages)  # type: ignore[arg-type]
        assert "not this model's prompt" in refused.value.message
        assert SECRET not in refused.value.message


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"temperature": 0.7}, 400, "temperature"), ({"n": 2}, 400, "n: "), ({"tools": []}, 400, "tools"),
        ({"model": SECRET}, 404, "No model of that name"), ({"messages": SECRET}, 400, "messages"),
    ],
)  # fmt: skip
def test_an_unsupported_chat_option_is_named(served: Served, changes: Any, status: int, message: str) -> None:
    body = {"model": "rewriter", "messages": question(served, "一天吃几次")} | changes

    answer = served.http.post(CHAT, json=body)

    assert (answer.status_code, answer.json()["error"]["type"]) == (status, "invalid_request_error")
    assert message in answer.json()["error"]["message"]
    assert SECRET not in answer.text


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (V1, {"instances": []}, "1 to 256"),
        (V1, {"questions": [REQUEST]}, "instances"),
        (V1, {"instances": [REQUEST | {"query": " "}]}, "instances[0]: query"),
        (V1, {"instances": [REQUEST | {"query": "长" * 4001}]}, "instances[0]: query"),
        (V1, {"instances": [REQUEST, REQUEST | {"tenant_id": "chengla"}]}, "instances[1]: this model was trained"),
        (V1, {"instances": [REQUEST | {"query": "虾青素" * 600}]}, "tokens without any history; the model reads"),
        (V1, {"instances": [REQUEST | {"model": SECRET}]}, "instances[0]: model"),
        (V1, {"instances": [SECRET]}, "instances[0]"),
        (V2, {"inputs": [tensor("query", [SECRET])]}, "tenant_id is missing"),
        (V2, {"inputs": [tensor("query", [SECRET]), tensor(SECRET, [SECRET])]}, "named"),
        (V2, {"inputs": [tensor("query", [SECRET], datatype="FP32")]}, "BYTES"),
        (V2, {"inputs": [tensor("query", [SECRET] * 2), tensor("tenant_id", ["fivedoctors"])]}, "tenant_id has 1"),
        (V2, {"inputs": [tensor("query", [SECRET], shape=[3]), tensor("tenant_id", ["fivedoctors"])]}, "shape and"),
        (V2, {"inputs": [tensor("query", [7]), tensor("tenant_id", ["fivedoctors"])]}, "row 0: query"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_answered_says_why(served: Served, path: str, body: Any, message: str) -> None:
    answer = served.http.post(path, json=body)

    assert answer.status_code == 400
    assert message in answer.json()["error"]
    assert SECRET not in answer.text


@pytest.mark.parametrize("path", [V1, V2, CHAT])
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"instances": ', JSON, 400), (b"", JSON, 400), (b"null", JSON, 400), (b'{"query": "\xff"}', JSON, 400),
        (b"[" * 100_000, JSON, 400), (b"{}", {"content-type": "text/plain"}, 400),
        (b'{"instances": [{"query": "x", "tenant_id": "fivedoctors", "tenant_id": "chengla"}]}', JSON, 400),
        (b'{"instances": [], "instances": [{"query": "x", "tenant_id": "fivedoctors"}]}', JSON, 400),
        (b'{"model": "rewriter", "model": "rewriter", "messages": []}', JSON, 400),
        (b'"' + b"x" * 1_000_001 + b'"', JSON, 413),
    ],
)  # fmt: skip
def test_a_body_that_is_no_question_is_refused(
    served: Served, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = served.http.post(path, content=body, headers=headers)

    assert answer.status_code == status
    assert answer.json()["error"]


def test_a_refusal_names_no_tenant_that_the_caller_did_not_name(served: Served) -> None:
    answer = served.http.post(V1, json={"instances": [REQUEST | {"tenant_id": "chengla"}]})

    assert answer.status_code == 400
    assert "fivedoctors" not in answer.text


def test_health_and_metadata_are_kserves_own_and_nobody_unloads_the_model(served: Served) -> None:
    assert served.http.get("/v2/health/ready").json() == {"ready": True}
    assert served.http.get("/v1/models/rewriter").json() == {"name": "rewriter", "ready": True}
    assert [item["name"] for item in served.http.get("/v2/models/rewriter").json()["inputs"]][:2] == [
        "query",
        "tenant_id",
    ]
    assert served.http.post("/v2/repository/models/rewriter/unload").status_code == 501
    assert served.http.post("/v1/models/other:predict", json={"instances": [REQUEST]}).status_code == 404


def test_metrics_name_the_version_and_are_there_before_anybody_asked(serve: Serve) -> None:
    with serve("--name", "tone") as served:
        version = digest(served.folder)[:12]
        text = served.http.get("/metrics").text
        assert (
            f'qinglan_rewriter_requests_total{{outcome="failed",protocol="openai",version="{version}"}} 0.0' in text
        )
        assert f'qinglan_rewriter_fallbacks_total{{reason="invented_number",version="{version}"}} 0.0' in text

        path = "/v1/models/tone:predict"
        served.http.post(path, json={"instances": [REQUEST, REQUEST]}).raise_for_status()
        served.http.post(path, json={})
        served.http.post(path, content=b"x" * 1_000_001)

        def counted(name: str, **labels: str) -> float:
            return served.counted(f"qinglan_rewriter_{name}", version=version, **labels)

        ended = [
            counted("requests_total", protocol="v1", outcome=how) for how in ("answered", "refused", "too_large")
        ]
        assert ended == [1, 1, 1]
        assert counted("seconds_count", protocol="v1") == 1
        assert counted("questions_total", tenant="fivedoctors") == 2
        assert counted("tokens_total", kind="prompt") > counted("tokens_total", kind="written") > 2
        assert counted("written_tokens_sum") == counted("tokens_total", kind="written")
        assert counted("written_tokens_bucket", le="+Inf") == 2
        assert (counted("under_way"), counted("waiting")) == (0, 0)


def test_a_request_keeps_its_id_and_leaves_one_line_without_its_text(served: Served) -> None:
    served.http.post(V1, json={"instances": [REQUEST | {"user_profile": SECRET}]}, headers={"x-request-id": "abc-1"})
    built = served.http.post(
        V1, json={"instances": [REQUEST | {"tenant_id": SECRET}]}, headers={"x-request-id": "a b"}
    )

    ids = {"abc-1", built.headers["x-request-id"]}
    until(lambda: ids <= {line.get("request_id") for line in served.lines()})  # written after the answer
    local = [line for line in served.lines() if line.get("request_id") == "abc-1"]
    assert [(item["outcome"], item["questions"], item["protocol"]) for item in local] == [("answered", 1, "v1")]
    assert local[0]["prompt_tokens"] > 0 and local[0]["ms"] > 0
    refused = [line for line in served.lines() if line.get("request_id") == built.headers["x-request-id"]]
    assert [item["outcome"] for item in refused] == ["refused"]
    assert SECRET not in served.log.read_text()
    assert "Traceback" not in served.log.read_text()


def test_a_model_that_never_ends_its_text_gives_the_plain_question_and_says_so(
    serve: Serve, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with serve(model=tiny_model(tmp_path_factory.mktemp("untaught"))) as served:
        assert served.ask() == {
            "rewritten_query": REQUEST["query"], "model_version": digest(served.folder)[:12], "fallback": "cut",
        }  # fmt: skip
        assert served.counted("qinglan_rewriter_fallbacks_total", reason="cut") == 1
