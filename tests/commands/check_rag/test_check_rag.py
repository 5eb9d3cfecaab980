"""`qinglan check-rag` at a company's RAG service, over a real socket: what it says, and the lines it proposes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from commands.cli import app
from pipelines.checks.checks import State
from pipelines.checks.rag.ask import Measurements, RowAnswers, TimedAnswer
from pipelines.checks.rag.judge import KnownPassages, judge, judge_scores
from pipelines.lines.config import CONFIGS, load_config
from pipelines.lines.rewriter import RunConfig
from qinglan.config import load_yaml, merge_settings
from qinglan.errors import ConfigError, DataError
from qinglan.llm.config import RagUpstream
from qinglan.rag.calibration import Calibration
from qinglan.rag.service_limits import NO_IDS, NO_NEED_NO_IDS
from qinglan.rows.rows import Question
from tests.servers.company_rags import PASSAGES, company_rag
from tests.servers.echo_servers import Reply, Scripted, running

QUESTIONS = {
    "虾青素软胶囊每日服用几次": "k1", "益生菌冻干粉要不要放冰箱": "k2", "胶原蛋白肽孕妇可以吃吗": "k3",
    "鱼油软胶囊放在哪里": "k4", "儿童维生素软糖几岁可以吃": "k5", "虾青素软胶囊随餐吃吗": "k1",
    "益生菌冻干粉开封后多久吃完": "k2",
    "胶原蛋白肽成年人能吃吗": "k3", "鱼油软胶囊每日服用几次": "k4", "儿童维生素软糖每日几粒": "k5",
    "虾青素软胶囊一次几粒": "k1",
}  # fmt: skip


class Outcome:
    def __init__(self, result: Any) -> None:
        self.code, self.error = result.exit_code, result.exception
        self.json = orjson.loads(result.stdout) if result.stdout.startswith("{") else {}
        self.states = {check["subject"]: check["state"] for check in self.json.get("checks", [])}
        self.rag = self.json.get("settings", {}).get("gateway", {}).get("rag", {})

    def what(self, subject: str) -> str:
        return next(
            f"{check['what']} {check['next_step']}" for check in self.json["checks"] if check["subject"] == subject
        )


@contextmanager
def checked(folder: Path, *options: str, **behaviour: Any) -> Iterator[Outcome]:
    sheet = folder / "questions.jsonl"
    rows = [{"问题": text, "标准段落": gold, "划分": "train"} for text, gold in QUESTIONS.items() for _ in range(2)]
    sheet.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    base = str(folder / "kb.jsonl")
    with company_rag(folder, **behaviour) as (url, _):
        files = ("--questions", str(sheet), "--knowledge-base", base)
        yield Outcome(CliRunner().invoke(app, ["check-rag", url, "--tenant", "acme", *files, "--json", *options]))


@pytest.mark.slow
def test_the_plans_contract_with_logits_works_and_the_lines_for_the_profile_say_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_TOKEN", "secret-token")
    options = ("--path", "/v2/search", "--header", "Authorization: Bearer $ACME_TOKEN")

    with checked(tmp_path, *options, path="/v2/search", token="secret-token") as outcome:
        rag = outcome.rag

    assert outcome.code == 0, outcome.error
    del outcome.states["latency"]  # a busy machine is slow
    assert outcome.states == {
        "shape": "ok", "rewrite": "ok", "need": "warning", "scores": "warning", "order": "ok", "ids": "ok",
        "gold": "ok", "stability": "ok", "snapshot": "warning",
    }  # fmt: skip
    assert "fitted on 11 labelled questions" in outcome.what("scores")
    assert "A run refuses such scores without a calibration" in outcome.what("scores")
    calibration = orjson.dumps(rag["calibration"]).decode()
    with checked(tmp_path, f"--set=gateway.rag.calibration={calibration}") as again:
        assert again.states["scores"] == "ok"
    assert rag["headers"] == {"Authorization": "Bearer $ACME_TOKEN"}
    assert rag["calibration"]["acme"]["scale"] == "logit"
    assert len(set(rag["snapshot_queries"])) == 10
    assert RagUpstream.parse(rag, "pasted").path == "/v2/search"
    assert "judge alone" in outcome.json["limits"][0]
    assert "secret-token" not in str(outcome.json)


@pytest.mark.slow
def test_a_service_of_another_shape_is_read_by_guessed_fields(tmp_path: Path) -> None:
    with checked(tmp_path, layout="flat") as refused:
        assert isinstance(refused.error, DataError) and "422" in str(refused.error)

    sets = [f"--set=gateway.rag.request.{name}=q" for name in ("query", "rewritten_query")]
    with checked(tmp_path, *sets, layout="flat") as outcome:
        answer = outcome.rag["answer"]

    assert outcome.states["shape"] == "warning"
    assert answer == {
        "code": "status", "success_code": 0, "recall": "result.docs", "id": "doc_id", "content": "text",
        "score": "score",
    }  # fmt: skip
    assert outcome.states["rewrite"] == "ok"
    assert any("rewrites it once more" in limit for limit in outcome.json["limits"])


@pytest.mark.slow
def test_a_service_that_ignores_rewrites_is_told_from_one_that_searches_them(tmp_path: Path) -> None:
    with checked(tmp_path, rewrites=False) as outcome:
        assert outcome.code == 3

    assert outcome.states["rewrite"] == "error"
    assert outcome.rag["request"] == {"rewritten_query": "query"}
    with checked(tmp_path, "--set=gateway.rag.request.rewritten_query=query", rewrites=False) as again:
        assert (again.code, again.states["rewrite"]) == (0, "ok")


@pytest.mark.slow
def test_a_service_that_scores_the_need_allows_more(tmp_path: Path) -> None:
    with checked(tmp_path, needs=True, scores="probability") as outcome:
        assert outcome.code == 0

    assert (outcome.states["need"], outcome.states["scores"]) == ("ok", "ok")
    assert "calibration" not in outcome.rag
    assert not any("judge alone" in limit for limit in outcome.json["limits"])


def test_answers_that_change_from_one_time_to_the_next_stand_for_no_knowledge_base(tmp_path: Path) -> None:
    with checked(tmp_path, restless=0.5) as outcome:
        pass

    assert outcome.states["stability"] == "warning"
    assert "snapshot_queries" not in outcome.rag
    assert "no answers are stable enough" in outcome.what("snapshot")


def test_another_knowledge_base_than_the_runs_is_an_error(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "elsewhere", "content": "x"}\n', encoding="utf-8")

    with checked(tmp_path, "--knowledge-base", str(other)) as outcome:
        assert outcome.code == 3

    assert outcome.what("ids").startswith(f"0 of {len(PASSAGES)} retrieved ids")


def answers(*hits: dict[str, Any]) -> RowAnswers:
    row = Question(id="q", tenant_id="acme", conversation_id="q", question="怎么吃")
    answer = TimedAnswer({"recall": [{"id": "", "content": "", **hit} for hit in hits]}, 0.1)
    return RowAnswers(row, answer, answer)


def scored(*scores: float) -> RowAnswers:
    return answers(*({"id": f"k{at}", "reranker_score": score} for at, score in enumerate(scores)))


@pytest.mark.parametrize(
    ("rows", "state", "what"),
    [
        ([scored(0.9, 0.5, 0.1)], "ok", "in the order of their scores"),
        ([scored(0.5, 0.5, 0.5)], "ok", "in the order of their scores"),
        ([scored(4.0, -3.0), scored(2.0, 1.5)], "ok", "in the order of their scores"),
        ([scored(0.1, 0.5, 0.9)], "warning", "1 of 1 answers are not"),
        ([scored(0.9, 0.1, 0.5), scored(0.9, 0.1)], "warning", "1 of 2 answers are not"),
        ([scored(-3.0, 4.0), scored(0.1, 0.9), scored(0.9)], "warning", "2 of 2 answers are not"),
        ([scored(0.0011, 0.0039, 0.0090, 0.0092, 0.00005)], "warning", "1 of 1"),
        ([scored(0.9), scored()], None, ""),
    ],
)
def test_the_order_of_passages_is_compared_with_their_scores(
    rows: list[RowAnswers], state: State | None, what: str
) -> None:
    checks = {check.subject: check for check in judge(Measurements(RagUpstream(), False, rows), 0.5, None).checks}

    assert (checks["order"].state if "order" in checks else None) == state
    assert state is None or what in checks["order"].what


@pytest.mark.parametrize(
    ("contents", "what"),
    [
        (("一天一粒", "放冰箱"), "2 of 2 retrieved texts are passages"),
        (("一天一粒", "另一段"), "1 of 2 retrieved texts are passages"),
        (("", ""), "no gold passage can be recognised."),
    ],
)
def test_a_service_without_ids_is_told_once_what_that_costs(contents: tuple[str, ...], what: str) -> None:
    rows = [answers(*({"content": text, "reranker_score": 0.5} for text in contents))]
    known = KnownPassages({"k1"}, "", {"一天一粒", "放冰箱"})

    verdict = judge(Measurements(RagUpstream(), False, rows), 0.5, known)

    [check] = [check for check in verdict.checks if check.subject == "ids"]
    assert check.state == "warning" and what in check.what
    assert NO_IDS in verdict.meaning and NO_NEED_NO_IDS in verdict.meaning
    assert not any("rewarded by rank" in limit for limit in verdict.meaning), "nothing is measured by rank"


@pytest.mark.parametrize(("tenants", "state"), [(("acme",), "warning"), (("acme", "umbrella"), "ok")])
def test_logits_are_mapped_where_every_tenant_of_the_sheet_has_a_calibration(
    tenants: tuple[str, ...], state: State
) -> None:
    hits = [{"id": "k1", "content": "一天一粒", "reranker_score": score} for score in (-3.0, 4.0)]
    answer = TimedAnswer({"recall": hits}, 0.1)
    questions = [
        Question(id=tenant, conversation_id=tenant, question="怎么吃", tenant_id=tenant)
        for tenant in ("acme", "umbrella")
    ]
    known = Calibration(scale="logit", slope=1.0, intercept=0.0)
    service = RagUpstream(calibration=dict.fromkeys(tenants, known))

    _, [check] = judge_scores([RowAnswers(question, answer, answer) for question in questions], service)

    assert check.state == state


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_no_wrong_data_and_the_options_name_is_told(status: int) -> None:
    with running(Scripted(Reply(status, b'{"detail": "Not authenticated"}'))) as url:
        result = CliRunner().invoke(app, ["check-rag", url, "--tenant", "other"])

    assert getattr(result.exception, "exit_code", None) == ConfigError.exit_code
    assert "--header 'Authorization: Bearer $NAME'" in str(result.exception)


def test_without_a_sheet_one_question_is_asked_and_a_silent_address_is_an_outage(tmp_path: Path) -> None:
    with company_rag(tmp_path) as (url, service):
        result = CliRunner().invoke(app, ["check-rag", url, "--tenant", "acme", "--question", "虾青素软胶囊怎么吃"])
        queries = {body["query"] for body in service.received}
        without = CliRunner().invoke(app, ["check-rag", url, "--tenant", "acme"])
    gone = CliRunner().invoke(app, ["check-rag", url, "--tenant", "acme"])

    assert result.exit_code == 0, result.output
    assert "For the profile" in result.output and "slope: 1.0" in result.output
    assert len(queries) == 1
    assert "No sheet was read" in without.output and "No sheet was read" not in result.output
    assert "1 question of acme:" in without.output
    assert gone.exception is not None and gone.exception.exit_code == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "address of the service"),
        (("http://127.0.0.1:9", "--header", "nonsense"), "NAME: VALUE"),
        (("http://127.0.0.1:9", "--set", "nonsense"), "SETTING=VALUE"),
        (("http://127.0.0.1:9", "--header", "Authorization: Bearer abc"), "holds a secret"),
        (("http://127.0.0.1:9", "--header", "X-Key: $NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_sent(options: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["check-rag", *options])

    assert message in str(result.exception)


@pytest.mark.slow
def test_a_profile_that_starts_our_service_is_switched_to_the_checked_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines are pasted over the profile: without the switch a run would go on with another service."""
    monkeypatch.chdir(tmp_path)
    profile_item = load_yaml(CONFIGS / "fivedoctors/gpt.yaml")
    path = tmp_path / "tenants/acme/gpt.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump({**profile_item, "stand_ins": {"rag": True}}))
    loaded = list[str]()

    def load_and_count(tenant: str, profile: str, **overrides: Any) -> RunConfig:
        loaded.append(profile)
        return load_config(tenant, profile, **overrides)

    monkeypatch.setattr("commands.check_rag.inputs.load_config", load_and_count)
    with checked(tmp_path, "--profile", "gpt") as outcome:
        settings = outcome.json["settings"]

    assert loaded == ["gpt"], "a profile is read once"
    assert settings["stand_ins"] == {"rag": False}
    path.write_text(yaml.safe_dump(merge_settings({**profile_item, "stand_ins": {"rag": True}}, settings)))
    assert load_config("acme", "gpt").gateway.rag.base_url == settings["gateway"]["rag"]["base_url"]
    del settings["stand_ins"]
    path.write_text(yaml.safe_dump(merge_settings({**profile_item, "stand_ins": {"rag": True}}, settings)))
    with pytest.raises(ConfigError, match=r"gateway.rag.base_url names .* Write `stand_ins: .rag: false."):
        load_config("acme", "gpt")
