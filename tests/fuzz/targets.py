"""The parsers of what others wrote: each takes bytes, and answers, or refuses in words."""

import asyncio
import base64
import json
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from pipelines.lines.config import CONFIGS, load_config
from qinglan.config import yaml_mapping
from qinglan.documents import parse_json
from qinglan.errors import QinglanError
from qinglan.evaluation.gates.evaluation_file import read_evaluation
from qinglan.evaluation.gates.kinds import kind_of
from qinglan.files.digests import FOLDER_ALGORITHM
from qinglan.http.addresses import address_fault, hide_secrets
from qinglan.http.http_client import retry_after
from qinglan.http.request_bundles import FrameDecoder, FrameHeader, encode_frame
from qinglan.lineage.release.release_notes import ROLLOUT_TYPE, format_rollout, read_overrides, read_rollout_notes
from qinglan.lineage.signing.dsse import IN_TOTO, open_envelope
from qinglan.lineage.signing.statement import from_payload
from qinglan.lineage.signing.statement_index import BREAK_GLASS
from qinglan.lineage.signing.trust import TRUST_FILE, TrustPolicy, ensure_keys, load_trust
from qinglan.lineage.trace.student_prompts import prompt_faults
from qinglan.llm.batch.api import _outcome
from qinglan.llm.client import read_error
from qinglan.llm.provider_quirks import clean_completion
from qinglan.llm.providers.redaction import key_remover
from qinglan.llm.providers.upstream import UpstreamError, error_from_status, read_completion
from qinglan.llm.usable_answer import usable_text
from qinglan.models.chat_template_work import template_fault
from qinglan.models.references import refuse_foreign_files
from qinglan.models.safetensors_header import read_header
from qinglan.prompts import Question, parse_user_message, student_messages
from qinglan.rag.contract import RagAnswer, RagRequest, read_reranker_fallback
from qinglan.rag.knowledge_base import read_knowledge_base
from qinglan.reward.judge import read_choice, read_score
from qinglan.rewriter import engine
from qinglan.rewriter.card import CARD, RewriterCard, card_bytes, read_card, refuse_other_prompts
from qinglan.rewriter.guard import failed_guards
from qinglan.rows.questions import Columns, read_questions
from qinglan.store.manifest import Manifest
from qinglan.store.name_history import HistoryEntry, check_history
from qinglan.style.service_responses import read_style_response, read_style_responses
from qinglan.tables.tables import write_table
from serving.gateway.bundle_handler import answer_bundle, read_bundle
from serving.rag.config import ContentConfig, RerankServiceConfig, RewriterConfig
from serving.rag.content_check import read_verdict
from serving.rag.reranker_client import read_info, read_scores
from serving.rag.rewriter_client import read_rewrite
from serving.rag.service_client import ServiceError
from serving.rollout.cluster.ledger import parse_rollout
from serving.rollout.shadow.payload_log import parse_line
from tests.fuzz.document_targets import document_targets
from tests.fuzz.target import Parse, Target, archive_part, file_of, from_file, with_part
from tests.models.qwen3 import CHAT_TEMPLATE
from tests.qinglan.evaluation.gates.test_rewriter_gate import cross_fitted, good
from tests.qinglan.evaluation.gates.test_style_gate import good as good_style


@cache
def sheet() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sheet.xlsx"
        with write_table(path, ["问题", "历史摘要", "划分"]) as add:
            add(["一天吃几次", "用户正在了解虾青素", "train"])
            add(["那它多少钱", "", "test"])
        return path.read_bytes()


SHEET_XML = "xl/worksheets/sheet1.xml"


def sheet_xml() -> bytes:
    return archive_part(sheet(), SHEET_XML)


def read_sheet_xml(content: bytes) -> None:
    """The sheet whose cells are these, in an otherwise whole workbook."""
    read_rows("questions.xlsx")(with_part(sheet(), SHEET_XML, content))


def read_rows(name: str) -> Parse:
    return from_file(name, lambda path: list(read_questions(path, Columns(), "fivedoctors")))


def read_profile(content: bytes) -> None:
    yaml_mapping(content.decode("utf-8", "replace"), "profile")
    from_file("profile.yaml", lambda path: load_config("fivedoctors", str(path)))(content)


def read_statement(content: bytes) -> None:
    from_payload(open_envelope(content).payload)


def read_template(content: bytes) -> None:
    """A template without a fault is rendered: its work must have the bound that was found."""
    text = content.decode("utf-8", "replace")
    if not template_fault(text):
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        started = time.perf_counter()
        messages = [{"role": "user", "content": "一天吃几次"}] * 3
        try:
            rendered = ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"]).from_string(text)
            size = len(rendered.render(messages=messages, add_generation_prompt=True))
        except (TemplateError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError):
            size = 0  # a template that fails is found when the model is tried, before it is released
        assert size < 10_000_000 and time.perf_counter() - started < 10, "a template without a bound was let through"


def read_words(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    question = Question("fivedoctors", text[: len(text) // 2], "", text[len(text) // 2 :])
    failed_guards(question, text)
    fields, _ = parse_user_message(student_messages(question)[1]["content"])
    parse_user_message(text)
    address_fault(text), hide_secrets(text), key_remover("sk-0123456789")(text)
    assert all("<" not in field for field in fields)


def read_paid_answer(content: bytes) -> None:
    """All that is done with the bytes of a provider, each step whatever the one before said."""
    text = content.decode("utf-8", "replace")
    tried: list[Callable[[], object]] = [
        lambda: usable_text(orjson.loads(read_completion(text, "teacher").raw), structured=True),
        lambda: clean_completion(read_completion(text, "teacher").raw, True, ("抱歉",)),
        *(lambda status=status: error_from_status(status, {}, text, "teacher") for status in (400, 401, 429, 503)),
        lambda: read_error("gateway", 500, content),
        lambda: retry_after({"retry-after": text[:60]}, 0.0),
    ]
    value = parse_json(content, "answer")
    if isinstance(value, dict):
        tried += [lambda: _outcome(value, "batch"), lambda: read_score(value), lambda: read_choice(value)]
    refused_in_words(tried, (QinglanError, UpstreamError))


def read_model_answer(content: bytes) -> None:
    tried: list[Callable[[], object]] = [
        lambda: engine.read_completion(content, "vLLM"),
        lambda: engine.context_tokens(content),
        lambda: read_style_response(content),
        lambda: read_style_responses(content, 1),
        lambda: read_reranker_fallback(content),
        lambda: RagAnswer.model_validate_json(content),
        lambda: RagRequest.model_validate_json(content),
    ]
    refused_in_words(tried, (QinglanError, ValueError))


def refused_in_words(tried: list[Callable[[], object]], refuses: tuple[type[Exception], ...]) -> None:
    for call in tried:
        try:
            call()
        except refuses:
            continue


def read_requests(content: bytes) -> None:
    from kserve.errors import InvalidInput

    from serving.rewriter.protocols import read_chat_request, read_messages, read_v1
    from serving.style import protocols as style

    value = parse_json(content, "body")
    refused_in_words(
        [
            lambda: read_v1(value),
            lambda: read_messages(read_chat_request(value).messages, {"fivedoctors": "改写"}),
            lambda: style.read_v1(value),
            lambda: style.read_instance(value, "body"),
        ],
        (InvalidInput,),
    )


def answer_frames(content: bytes) -> None:
    """Frames of a bundle, at once and byte by byte, and the answers to them."""

    async def answer(_: bytes, __: Any) -> Any:
        from starlette.responses import Response

        return Response(b"{}")

    posts = {"/v1": answer}

    async def answers() -> int:
        return sum([len(piece) async for piece in answer_bundle(read_bundle(content, posts), posts)])

    frames = list(FrameDecoder().feed(content))
    decoder = FrameDecoder()
    assert [frame for at in range(len(content)) for frame in decoder.feed(content[at : at + 1])] == frames
    asyncio.run(answers())


def read_model_settings(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config.json", "tokenizer_config.json"):
            (Path(folder) / name).write_bytes(content)
        refuse_foreign_files(Path(folder), weights=False)


def read_index(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.safetensors").write_bytes(b"")
        (Path(folder) / "model.safetensors.index.json").write_bytes(content)
        refuse_foreign_files(Path(folder), weights=False)


def judge_figures(content: bytes) -> None:
    """Read evaluation.json as register does: its kind, its model, and the verdict by the settings in it."""
    with file_of(content, "evaluation.json") as path:
        evaluation = read_evaluation(path)
        kind = kind_of(evaluation, "evaluation.json")
        kind.model(evaluation), kind.verdict(evaluation, "evaluation.json")


def read_model_card(content: bytes) -> None:
    with file_of(content, CARD) as path:
        card = read_card(path.parent)
        list(prompt_faults(card.system_prompts, SHA, [from_payload(json.dumps(STATEMENT).encode())]))
        refuse_other_prompts(path.parent, card)


def read_history_entry(content: bytes) -> None:
    entry = HistoryEntry.parse(content, "entry")
    assert HistoryEntry.parse(entry.dump(), "entry") == entry
    check_history([entry, entry])


def read_service_answer(content: bytes) -> None:
    """Read the answers of the rewriter, the reranker and the style service as the RAG service does."""
    tried: list[Callable[[], object]] = [
        lambda: read_rewrite(RewriterConfig(url="http://127.0.0.1"), content),
        lambda: read_rewrite(RewriterConfig(url="http://127.0.0.1", kind="openai"), content),
        lambda: read_scores(RerankServiceConfig(kind="tei", model="m", url="http://127.0.0.1"), content, 1),
        lambda: read_scores(RerankServiceConfig(kind="vllm", model="m", url="http://127.0.0.1"), content, 1),
        lambda: read_info(content),
        lambda: read_verdict(content, ContentConfig(url="http://127.0.0.1")),
        lambda: parse_line(content),
    ]
    refused_in_words(tried, (ServiceError,))


def read_note(content: bytes) -> None:
    """Audit a note beside a release: these bytes, as if they had been signed."""
    signatures = [{"keyid": SHA, "sig": "AA=="}]
    envelope = {"payload": base64.b64encode(content).decode(), "payloadType": IN_TOTO, "signatures": signatures}
    notes = [json.dumps(envelope).encode()]
    list(map(format_rollout, read_rollout_notes(notes, TrustPolicy(), SHA, "fivedoctors")))
    read_overrides(notes, TrustPolicy(), SHA, "fivedoctors", datetime.now(UTC))


def read_rollout(content: bytes) -> None:
    value = parse_json(content, "rollout")
    metadata = {"namespace": "a", "name": "b", "resourceVersion": "1"}
    if isinstance(value, dict) and isinstance(value.get("spec"), dict):
        parse_rollout({"metadata": metadata, "spec": value["spec"], "status": value.get("status")})


def jsonl(*rows: Any) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


SHA = "a1" * 32
RESOURCE = {"name": "chats", "digest": {"sha256": SHA}, "annotations": {"rows": 60}}
STATEMENT = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [RESOURCE],
    "predicateType": "https://slsa.dev/provenance/v1",
    "predicate": {
        "buildDefinition": {
            "buildType": "urn:qinglan:stage:v2",
            "externalParameters": {"stage": "convert", "config": {"a": 1}},
            "internalParameters": {"seeds": {}}, "resolvedDependencies": [RESOURCE],
        },
        "runDetails": {
            "builder": {"id": "b", "version": {"python": "3.11"}},
            "metadata": {"invocationId": "run", "startedOn": "2026-11-25T08:00:00+00:00",
                         "finishedOn": "2026-11-25T08:00:01+00:00"},
            "byproducts": [{"name": "facts", "annotations": {"rows": 1}}],
        },
    },
}  # fmt: skip
WRITTEN = '<think>a</think>{"综合得分": 4, "更好": "甲"}'
CHOICE = {
    "index": 0, "finish_reason": "stop", "text": "虾青素", "message": {"role": "assistant", "content": WRITTEN},
}  # fmt: skip
COMPLETION = {
    "id": "1", "choices": [CHOICE],
    "usage": {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}},
}  # fmt: skip
FAILURE = {"error": {"code": "content_filter", "type": "invalid", "message": "no", "param": "a"}}
BATCH_LINE = {"custom_id": "1", "response": {"status_code": 200, "body": COMPLETION}, "error": {"code": "a"}}
SERVICE_ANSWERS: list[Any] = [
    {"predictions": [{"rewritten_query": "一天几次", "model_version": "1"}]},
    {"model": "1", "choices": [{"message": {"content": "一天几次"}}]},
    [{"index": 0, "score": 0.5}],
    {"results": [{"index": 0, "relevance_score": 0.5}], "model_id": "m", "max_client_batch_size": 32},
    {"predictions": [{"predicted_label": "无伤害", "probabilities": {"无伤害": 0.5}}] * 2},
    {"request_id": "a", "time": "2026-11-25T08:00:00+00:00", "tenant": "fivedoctors", "question": "一天几次"},
]
SUBJECT = {"name": "fivedoctors/rewriter", "digest": {FOLDER_ALGORITHM: SHA}}
NOTE: dict[str, Any] = {
    "_type": "https://in-toto.io/Statement/v1",
    "predicateType": ROLLOUT_TYPE,
    "subject": [SUBJECT],
    "predicate": {
        "rollout": "a/b",
        "service": "rewriter",
        "outcome": "Promoted",
        "began": "2026-11-25T08:00:00+00:00",
        "ended": "2026-11-25T08:00:00+00:00",
        "reasons": ["a"],
        "history": [{"share": 5}],
        "spec": {"a": 1},
        "stable": {},
        "by": "a",
        "reason": "a reason of ten letters",
        "at": "2026-11-25T08:00:00+00:00",
        "missing": [],
    },
}
ROLLOUT = {
    "spec": {
        "inferenceService": "rewriter", "steps": [5, 100],
        "checks": [{"name": "slow", "margin": 0.05, "seconds": 1.0}],
        "release": {
            "name": "rewriter", "digest": SHA, "uri": f"s3://a/releases/{SHA}", "model": SHA,
        },
    },
    "status": {"phase": "Verify", "reasons": ["a"], "history": []},
}  # fmt: skip
STYLE_ANSWER = {"predicted_label": "诚实", "probabilities": {"诚实": 0.5}, "predictions": [{"probabilities": {}}]}
RAG_ANSWER = {"code": 200, "msg": "success", "data": {"rewritten_query": "a", "recall": [], "rewriter": "r",
              "rewriter_version": "", "fallback_reason": "", "scored_against": "need", "snapshot": SHA,
              "reranker": "r", "reranker_digest": SHA, "reranker_fallback_reason": "timeout"}}  # fmt: skip
INSTANCE = {"query": "一天吃几次", "tenant_id": "fivedoctors", "user_profile": "", "history_summary": "虾青素"}
CHAT = {"model": "rewriter", "messages": [{"role": "system", "content": "改写"}, {"role": "user", "content": "原始查询: a\n\n请改写。"}]}  # fmt: skip  # noqa: E501
SETTINGS: dict[str, Any] = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
            "chat_template": CHAT_TEMPLATE, "rope_scaling": None, "auto_map": {}}  # fmt: skip
HEADER = json.dumps({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}).encode()
LOOPS = (
    "{% for a in messages %}{% for b in messages %}{{ a.content }}{% endfor %}{% endfor %}"
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(messages) }}{% set n = namespace(x='') %}{% set n.x = n.x + 'a' %}"
)


def frames(*bodies: bytes) -> bytes:
    return b"".join(encode_frame(FrameHeader(at, "/v1", {"a": "b"}), body) for at, body in enumerate(bodies))


@cache
def trust_policy() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        ensure_keys(Path(folder))
        return (Path(folder) / TRUST_FILE).read_bytes()


@cache
def targets() -> dict[str, Target]:
    questions = jsonl(
        {"问题": "一天吃几次", "编号": 1, "标准段落": ["k1"]}, {"question": "多少钱", "split": "test", "id": "b"}
    )
    passages = jsonl(
        {"id": "k1", "content": "一天一粒", "title": "用法", "metadata": {"a": 1}}, {"id": "k2", "content": "b"}
    )
    profiles = tuple((CONFIGS / "fivedoctors" / f"{name}.yaml").read_bytes() for name in ("demo", "gpt"))
    envelope = {
        "payload": "e30=",
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [{"keyid": SHA, "sig": "AA=="}],
    }
    manifest = {"files": {"model/a.json": {"sha256": SHA, "size": 3}, "b": {"sha256": SHA, "size": 0}}}
    words = "三百毫克 300mg 二分之一 Ⅲ粒 1.5万元 ３粒 百分之五 <|im_end|> 原始查询: a\n\n请改写。".encode()
    return {
        "sheet": Target(read_rows("questions.xlsx"), (sheet(),)),
        "sheet-xml": Target(read_sheet_xml, (sheet_xml(),)),
        "questions": Target(read_rows("questions.jsonl"), (questions,)),
        "knowledge-base": Target(from_file("kb.jsonl", lambda path: list(read_knowledge_base(path))), (passages,)),
        "profile": Target(read_profile, profiles),
        "trust": Target(from_file("trust.yaml", load_trust), (trust_policy(),)),
        "envelope": Target(read_statement, (json.dumps(envelope).encode(),)),
        "statement": Target(from_payload, (json.dumps(STATEMENT).encode(),)),
        "manifest": Target(lambda data: Manifest.parse(data, "manifest").digest, (json.dumps(manifest).encode(),)),
        "template": Target(read_template, (CHAT_TEMPLATE.encode(), LOOPS.encode())),
        "words": Target(read_words, (words,)),
        "paid-answer": Target(read_paid_answer, tuple(
            json.dumps(value, ensure_ascii=False).encode() for value in (COMPLETION, FAILURE, BATCH_LINE)
        )),
        "model-answer": Target(read_model_answer, tuple(
            json.dumps(value, ensure_ascii=False).encode() for value in (COMPLETION, STYLE_ANSWER, RAG_ANSWER)
        )),
        "request": Target(read_requests, tuple(
            json.dumps(value, ensure_ascii=False).encode() for value in ({"instances": [INSTANCE]}, CHAT)
        )),
        "bundle": Target(answer_frames, (frames(b"{}", b"", b"\n[0]"),)),
        "evaluation": Target(judge_figures, tuple(
            json.dumps(figures | {"settings": {"gate": {}}}).encode()
            for figures in (good(), cross_fitted(), good_style())
        )),
        "card": Target(read_model_card, (card_bytes(RewriterCard(stage="ppo", system_prompts={"a": "改写"})),)),
        "name-history": Target(read_history_entry, (
            HistoryEntry(digest=SHA, time="2026-11-25T08:00:00+00:00", by="releaser", previous=None).dump(),
            HistoryEntry(digest=SHA, time="2026-11-25T08:00:00+00:00", by="a", previous=SHA, name="a/b", key=SHA,
                         signature="AA==").dump(),
        )),
        "model-settings": Target(read_model_settings, (json.dumps(SETTINGS).encode(),)),
        "model-index": Target(read_index, (b'{"metadata": {}, "weight_map": {"a": "model.safetensors"}}',)),
        "service-answer": Target(read_service_answer, tuple(
            json.dumps(value, ensure_ascii=False).encode() for value in SERVICE_ANSWERS
        )),
        "note": Target(read_note, tuple(
            json.dumps(NOTE | {"predicateType": kind}).encode() for kind in (ROLLOUT_TYPE, BREAK_GLASS)
        )),
        "rollout": Target(read_rollout, (json.dumps(ROLLOUT).encode(),)),
        **document_targets(),
        "safetensors": Target(
            from_file("model.safetensors", read_header), (len(HEADER).to_bytes(8, "little") + HEADER + bytes(16),)
        ),
    }  # fmt: skip
