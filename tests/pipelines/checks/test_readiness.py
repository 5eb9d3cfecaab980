"""All that a run waits for is named at once: by the plan, and by run and prepay before anything is paid."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from commands.prepay.prepay import prepay_run
from commands.run.run import run_pipeline
from pipelines.checks.plan import Plan
from pipelines.checks.rag_probe import with_earlier_queries, with_snapshot_queries
from pipelines.checks.readiness import check_readiness, disallowed_hosts
from pipelines.lines.config import dump_config, load_config
from pipelines.lines.rewriter import REWRITER, RunConfig
from qinglan.errors import ConfigError, OutageError
from qinglan.files.files import read_jsonl
from qinglan.rag.contract import RAG_PATH
from qinglan.rag.service_limits import NO_CONTENT, NO_IDS, NO_NEED, NO_SNAPSHOT
from qinglan.rows.questions import read_questions
from tests.commands.conftest import Here
from tests.servers.echo_servers import PRICE, Reply, Scripted, running

DATA = ("generate", "validate", "convert")


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QINGLAN_ALLOWED_HOSTS", "WRITER_KEY", "EXAMINER_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


def model(host: str, key: str) -> dict[str, Any]:
    return {"base_url": f"https://{host}/v1", "model": host, "price": PRICE, "api_key_env": key}


def profile(folder: Path, rag: str) -> str:
    writer = model("writer.example", "WRITER_KEY")
    gateway = {"teacher": writer, "judge": writer, "examiner": model("examiner.example", "EXAMINER_KEY")}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"training": "laptop", "gateway": {**gateway, "rag": {"base_url": rag}}}))
    return str(path)


def files(folder: Path) -> dict[str, Path]:
    splits = ["train"] * 298 + ["dev", "test"]
    rows = [{"question": f"怎么吃{number}", "split": split} for number, split in enumerate(splits)]
    (folder / "q.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    (folder / "kb.jsonl").write_text('{"id": "k1", "content": "一天一粒"}\n', encoding="utf-8")
    return {"questions": folder / "q.jsonl", "knowledge_base": folder / "kb.jsonl"}


def missing(config: RunConfig, stages: tuple[str, ...] = DATA) -> list[str]:
    return [str(problem) for problem in check_readiness(config, stages).missing]


def test_a_run_names_files_hosts_keys_and_the_rag_service_in_one_error(tmp_path: Path, nobody: str) -> None:
    config = load_config("fivedoctors", profile(tmp_path, nobody))

    with pytest.raises(ConfigError) as refused:
        run_pipeline(config, tmp_path / "run", until="convert")

    _, *lines = refused.value.lines
    assert [line.split(".")[0] for line in lines] == [
        "- --questions is missing", "- --knowledge-base is missing", "- Not allowed: host 'writer",
        "- No key for teacher at https://writer", "- RAG service http://127",
    ]  # fmt: skip
    assert "QINGLAN_ALLOWED_HOSTS=writer.example" in lines[2] and "variable WRITER_KEY" in lines[3]
    assert not (tmp_path / "run").exists()


def test_the_examiner_is_asked_for_by_a_run_that_evaluates(tmp_path: Path, nobody: str) -> None:
    config = load_config("fivedoctors", profile(tmp_path, nobody), **files(tmp_path))

    whole = " ".join(missing(config, REWRITER.until(REWRITER.last)))
    assert "QINGLAN_ALLOWED_HOSTS=writer.example,examiner.example" in whole and "EXAMINER_KEY" in whole
    assert "EXAMINER_KEY" not in " ".join(missing(config))
    assert missing(config, ("base",)) == [], "it calls no service"


def test_what_is_set_is_not_missing_and_the_plans_own_contract_is_enough_of_a_rag_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "writer.example")
    monkeypatch.setenv("WRITER_KEY", "k")
    service = Scripted(Reply(200, orjson.dumps({"data": {"recall": [{"reranker_score": 0.5}]}})))

    with running(service) as rag:
        ready = check_readiness(load_config("fivedoctors", profile(tmp_path, rag), **files(tmp_path)), DATA)
    assert ready.missing == []
    [(path, body, _)] = service.requests
    assert (path, orjson.loads(body)["query"]) == (RAG_PATH, "怎么吃0")
    assert [limit.split(" and ")[0][:60] for limit in ready.rag.limits] == [
        NO_NEED[:60], NO_IDS[:60], NO_CONTENT[:60], NO_SNAPSHOT[:60],
    ]  # fmt: skip
    assert ready.rag.snapshot is False


def test_a_run_chooses_the_questions_that_stand_for_a_knowledge_base_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "writer.example")
    monkeypatch.setenv("WRITER_KEY", "k")
    service = Scripted(Reply(200, orjson.dumps({"data": {"recall": [{"id": "k1", "reranker_score": 0.5}]}})))

    with running(service) as rag:
        config = load_config("fivedoctors", profile(tmp_path, rag), **files(tmp_path))
        ready = check_readiness(config, DATA)
    queries = ready.rag.snapshot_queries
    assert queries and len(set(queries)) == len(queries)
    assert len(service.requests) == 1 + 2 * len(queries)
    assert (ready.missing, ready.rag.snapshot) == ([], True)
    assert f"a digest of its answers to {len(queries)} questions stands in" in ready.rag.limits[-1]

    before = tmp_path / "config.yaml"
    dump_config(with_snapshot_queries(config, ("chosen before",)), before)
    assert with_earlier_queries(config, before).gateway.rag.snapshot_queries == ("chosen before",)
    elsewhere = load_config("fivedoctors", profile(tmp_path, "http://127.0.0.1:9"), **files(tmp_path))
    assert with_earlier_queries(elsewhere, before) == elsewhere


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Reply(404, b'{"detail": "Not Found"}'), "status 404.*gateway.rag.path"),
        (Reply(401, b'{"detail": "Not authenticated"}'), "status 401.*gateway.rag.headers"),
        (Reply(200, b'{"docs": []}'), r"no list at data\.recall.*check-rag"),
        (Reply(200, b'{"data": {"recall": [{"reranker_score": 7.5}]}}'), r"calibration\.fivedoctors"),
    ],
)
def test_a_rag_service_with_another_contract_is_named_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Reply, message: str
) -> None:
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "writer.example")
    monkeypatch.setenv("WRITER_KEY", "k")

    with running(Scripted(answer)) as rag:
        [problem] = missing(load_config("fivedoctors", profile(tmp_path, rag), **files(tmp_path)))

    assert re.search(message, problem)
    assert "later" not in problem


def test_a_rag_service_alone_that_is_away_is_an_outage(tmp_path: Path, nobody: str) -> None:
    changes = {"stand_ins": {"rag": False}, "gateway": {"rag": {"base_url": nobody}}}

    with pytest.raises(OutageError):
        run_pipeline(
            load_config("fivedoctors", "demo", **files(tmp_path), **changes), tmp_path / "run", until="convert"
        )


def test_a_rag_service_on_a_host_that_is_not_allowed_is_not_asked(tmp_path: Path) -> None:
    named = missing(load_config("fivedoctors", profile(tmp_path, "http://10.255.255.1:8000"), **files(tmp_path)))

    assert [line for line in named if "10.255.255.1" in line] == [
        "Not allowed: host 'writer.example' (teacher.base_url, judge.base_url), host '10.255.255.1' (rag.base_url). "
        "If that is meant, the operator sets QINGLAN_ALLOWED_HOSTS=writer.example,10.255.255.1"
    ]


@pytest.mark.parametrize(("stage", "settings", "where"), [
    ("ppo", {"ppo": {"reward": {"style": {"url": "http://evil.example", "weight": 0.1, "wanted": ["a"]}}}},
     "ppo.reward.style.url"),
    ("evaluate", {"evaluate": {"rewriter_urls": {"sft": "http://evil.example:8080"}}}, "evaluate.rewriter_urls.sft"),
])  # fmt: skip
def test_an_address_that_a_stage_calls_by_itself_must_be_allowed(
    tmp_path: Path, stage: str, settings: dict[str, Any], where: str
) -> None:
    config = load_config("fivedoctors", "demo", **files(tmp_path), **settings)

    [refused] = [str(problem) for problem in check_readiness(config, [stage]).missing if "evil" in str(problem)]
    assert f"host 'evil.example' ({where})" in refused
    assert not [problem for problem in check_readiness(config, ["convert"]).missing if "evil" in str(problem)]


def test_hosts_that_are_allowed_already_stay_in_the_value_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "a.example,")
    named = [
        *map(str, disallowed_hosts({"one": "https://b.example", "two": "ftp://c", "three": "https://a.example"}))
    ]

    assert named[0] == "two: no http or https address in small letters, such as https://host:8000."
    assert named[1].endswith("QINGLAN_ALLOWED_HOSTS=a.example,b.example")
    assert len(named) == 2


def test_stand_ins_wait_for_files_alone(tmp_path: Path) -> None:
    assert missing(load_config("fivedoctors", "demo", **files(tmp_path)), REWRITER.until(REWRITER.last)) == []


class NotApprovedError(Exception):
    pass


def test_a_run_that_shows_its_plan_reads_the_sheet_and_looks_gold_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, times = load_config("fivedoctors", "demo", **files(tmp_path)), list[Path]()
    assert config.questions
    config.questions.write_text(config.questions.read_text().replace('"split"', '"gold":"k1","split"'))

    def count_reading(path: Path, *more: Any) -> Any:
        times.append(path)
        return read_questions(path, *more)

    def count_look_up(path: Path, *more: Any) -> Any:
        times.append(path)
        return read_jsonl(path, *more)

    def refuse(plan: Plan) -> None:
        assert plan.steps and plan.stages == REWRITER.until(DATA[-1])
        raise NotApprovedError

    monkeypatch.setattr("pipelines.lines.sheet.read_questions", count_reading)
    monkeypatch.setattr("pipelines.checks.preflight.read_jsonl", count_look_up)

    with pytest.raises(NotApprovedError):
        run_pipeline(config, tmp_path / "run", until=DATA[-1], approve=refuse)

    assert times == [config.questions, config.knowledge_base]


def test_a_run_that_the_gate_can_only_hold_says_so_before_it_starts_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> None:
        raise NotApprovedError

    monkeypatch.setattr("commands.run.run.check_keys", stop)
    config = load_config("fivedoctors", "demo", **files(tmp_path))
    for until in ("", "convert"):
        with pytest.raises(NotApprovedError):
            run_pipeline(config, tmp_path / "run", until=until)
        assert ("Can this be promoted?" in capsys.readouterr().err) == (not until)


def test_prepay_names_hosts_and_keys_and_wants_no_rag_service(tmp_path: Path, nobody: str) -> None:
    config = load_config("fivedoctors", profile(tmp_path, nobody), **files(tmp_path))

    with pytest.raises(ConfigError) as refused:
        prepay_run(config, tmp_path / "run", lambda quote: True)

    text = str(refused.value)
    assert "QINGLAN_ALLOWED_HOSTS=writer.example" in text and "WRITER_KEY" in text
    assert "EXAMINER_KEY" not in text and nobody not in text


def test_the_plan_ends_with_what_a_run_waits_for_and_fits_80_columns(
    tmp_path: Path, nobody: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ["plan", "fivedoctors", "--profile", profile(tmp_path, nobody), "--questions", str(tmp_path / "q.jsonl")]
    files(tmp_path)

    ended, as_json = here(*words), here(*words, "--json")

    assert ended.code == as_json.code == ConfigError.exit_code, "as the run's own"
    assert "--knowledge-base is missing" in ended.errors and "EXAMINER_KEY" in ended.errors
    assert "…" not in ended.out and max(map(len, ended.out.splitlines())) <= 80
    assert "evaluate judgements" in ended.out and "validate retrievals" in ended.out
    assert len(orjson.loads(as_json.out)["missing"]) == 5
