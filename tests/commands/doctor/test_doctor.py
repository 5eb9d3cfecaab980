"""`qinglan doctor`: each fault is named with what mends it, by the code that run and submit check with."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from commands.cli import app
from commands.doctor import machine
from commands.doctor.cluster import platform_checks
from commands.doctor.machine import proxy_check, python_check, room_check
from commands.doctor.profile import profile_checks
from commands.doctor.providers import provider_checks
from pipelines.checks.checks import Check, worst_state
from pipelines.checks.cluster.cluster_snapshot import Platform
from pipelines.checks.plan import make_plan
from pipelines.checks.sizing.check import check_room
from pipelines.lines.config import load_config
from qinglan.errors import ConfigError
from qinglan.llm.config import PaidModel
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from standins.teacher.extractive_backend import load_extractive_backend
from tests.servers.company_rags import company_rag, write_passages
from tests.servers.echo_servers import PRICE, Reply, Scripted, completion, running

PLATFORM = Platform(
    "https://cluster:6443", "v1.34.1",
    {"serving.kserve.io": "v1beta1", "kubeflow.org": "v1", "qinglan.dev": "v1alpha1"},
    {"serving.kserve.io": "kserve-controller:v0.16.0"}, ("standard",), "standard",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def paid_model(url: str, **settings: Any) -> PaidModel:
    values = {"base_url": f"{url}/v1", "model": "fivedoctors", "price": PRICE, "max_output_tokens": 300, **settings}
    return PaidModel.parse(values, "model")


@contextmanager
def teacher(folder: Path, **behaviour: Any) -> Iterator[str]:
    backend = load_extractive_backend({"fivedoctors": write_passages(folder)})
    with running(create_app(backend, Behaviour(**behaviour))) as url:
        yield url


@pytest.mark.slow
def test_a_model_that_answers_in_its_form_is_fine_and_costs_less_than_a_cent(tmp_path: Path) -> None:
    with teacher(tmp_path) as url:
        models = {"teacher": paid_model(url), "judge": paid_model(url, answer_format="tool")}
        free, paid = list(provider_checks(models, paid=False)), list(provider_checks(models, paid=True))

    assert [check.state for check in (*free, *paid)] == ["ok"] * 4
    assert "answers without a key and has fivedoctors" in free[0].what
    assert "points" in paid[1].what and "USD at most" in paid[1].what


def test_doctor_names_a_key_of_a_local_proxy_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITELLM_KEY", raising=False)
    config = load_config("fivedoctors", "gpt")
    teacher = paid_model("http://127.0.0.1:4000", api_key_env="LITELLM_KEY")
    gateway = config.gateway.model_copy(update={"teacher": teacher, "judge": teacher, "examiner": teacher})
    checks = [*profile_checks(config.model_copy(update={"gateway": gateway}), tmp_path, date(2026, 11, 28), False)]

    [warning] = [check for check in checks if check.subject == "keys" and check.state == "warning"]
    assert "LITELLM_KEY is not set" in warning.what and "export LITELLM_KEY=..." in warning.next_step
    assert not any("all are set" in check.what for check in checks)


def test_a_form_that_is_refused_is_named_with_one_that_is_taken(tmp_path: Path) -> None:
    with teacher(tmp_path, answer_formats="json_object") as url:
        [check] = provider_checks({"judge": paid_model(url)}, paid=True)

    assert check.state == "error"
    assert "It was asked for json_schema" in check.what
    assert check.next_step == "Set answer_format: json_object for the judge."


@pytest.mark.parametrize(
    ("reply", "state", "message"),
    [
        (Reply(401, b'{"error": {"message": "bad key"}}'), "error", "key in QINGLAN_API_KEY is not accepted"),
        (Reply(200, b'{"data": [{"id": "other"}]}'), "warning", "lists no model fivedoctors"),
        (Reply(404, b"nothing"), "warning", "lists no models"),
    ],
)
def test_a_host_is_asked_for_its_models_free_of_charge(reply: Reply, state: str, message: str) -> None:
    with running(Scripted(reply)) as url:
        [check] = provider_checks({"teacher": paid_model(url)}, paid=False)

    assert (check.state, message in check.what) == (state, True)


def listing(*names: str) -> Reply:
    return Reply(200, orjson.dumps({"data": [{"id": name} for name in names]}))


MANY = [f"model-{number:02}" for number in range(30)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["flash-mini", "flash"], "Set gateway.teacher.model to one that it has: flash, flash-mini."),
        (["deepseek-flash"], "Set gateway.teacher.model to one that it has: deepseek-flash."),
        ([*MANY, "flash-1"], "one that it has: flash-1, "),
        (MANY, " It has 30."),
    ],
)
@pytest.mark.parametrize("paid", [False, True])
def test_a_wrong_model_is_told_with_those_that_the_host_has(names: list[str], message: str, paid: bool) -> None:
    refusal = [Reply(404, b'{"error": {"message": "The model flashs does not exist"}}')] if paid else []
    with running(Scripted(*refusal, listing(*names))) as url:
        [check] = provider_checks({"teacher": paid_model(url, model="flashs")}, paid=paid)

    assert check.state == ("error" if paid else "warning") and message in check.next_step


@pytest.mark.parametrize(("role", "limit", "value"), [("teacher", 300, "600"), ("judge", 64, "128")])
def test_a_cut_answer_names_its_setting_and_a_value(role: str, limit: int, value: str) -> None:
    with running(Scripted(Reply(200, completion("虾青素", "length")))) as url:
        [check] = provider_checks({role: paid_model(url, max_output_tokens=limit)}, paid=True)

    assert check.state == "error"
    setting = f"gateway.{role}.max_output_tokens"
    assert check.next_step == f"{setting} is {limit}. Set {setting}: {value}, or more."


COUNTED = {"prompt_tokens": 90, "completion_tokens": 9}


@pytest.mark.parametrize(
    ("usage", "state"),
    [
        (COUNTED, "ok"),
        (None, "warning"),
        ({"prompt_tokens": 0, "completion_tokens": 0}, "warning"),
        (COUNTED | {"prompt_tokens": -90}, "warning"),
        (COUNTED | {"completion_tokens": 10**12}, "warning"),
    ],
)
def test_a_host_that_does_not_count_its_tokens_is_a_warning_with_what_it_does_to_the_budget(
    usage: Any, state: str
) -> None:
    answer = orjson.loads(completion("虾青素 服用频次"))
    answer = {name: value for name, value in answer.items() if name != "usage"}
    with running(Scripted(Reply(200, orjson.dumps(answer | ({} if usage is None else {"usage": usage}))))) as url:
        [check] = provider_checks({"teacher": paid_model(url)}, paid=True)

    assert check.state == state
    assert "虾青素 服用频次" in check.what
    assert ("books each such answer at the most that it can cost" in check.what) is (state == "warning")
    assert ("gateway.teacher.max_output_tokens" in check.next_step) is (state == "warning")


def test_a_host_without_an_answer_is_an_error() -> None:
    [check] = provider_checks({"teacher": paid_model("http://127.0.0.1:9")}, paid=False)
    [paid] = provider_checks({"judge": paid_model("http://127.0.0.1:9")}, paid=True)

    assert (check.state, paid.state) == ("error", "error")


def test_the_machine_has_room_or_says_how_much_is_missing() -> None:
    assert (python_check((3, 11)).state, python_check((3, 11)).what) == ("ok", "version 3.11.")
    assert python_check((3, 13)).state == "error"
    states = [room_check(memory, disk, 2, Path("runs")).state for memory, disk in ((16, 50), (4, 50), (16, 2))]
    assert states == ["ok", "warning", "error"]


@pytest.mark.parametrize(
    ("environment", "state", "named"),
    [
        ({}, "ok", "none is set"),
        ({"NO_PROXY": "localhost"}, "ok", "none is set"),
        ({"HTTPS_PROXY": "http://proxy:3128", "all_proxy": "s://p"}, "warning", "HTTPS_PROXY, all_proxy: no call"),
    ],
)
def test_a_proxy_that_no_call_takes_is_told(environment: dict[str, str], state: str, named: str) -> None:
    check = proxy_check(environment)

    assert check.state == state and check.what.startswith(named)
    assert "proxy:3128" not in f"{check.what} {check.next_step}", "it may hold a password"


@pytest.mark.slow
def test_doctor_says_of_a_sheet_and_of_the_disk_what_the_plan_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training rows nearly repeat the test's, none is labelled, the disk is small, prices are old."""
    splits = ["train"] * 300 + ["dev"] * 2 + ["test"] * 2
    questions = [
        "虾青素胶囊饭前还是饭后吃" if n >= 220 and name != "dev" else f"第{n}{n}款" for n, name in enumerate(splits)
    ]
    rows = [{"问题": questions[n], "对话ID": f"c{n}", "划分": name} for n, name in enumerate(splits)]
    (tmp_path / "q.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    (tmp_path / "kb.jsonl").write_text('{"id": "k1", "content": "段"}\n', encoding="utf-8")
    files = {"questions": tmp_path / "q.jsonl", "knowledge_base": tmp_path / "kb.jsonl"}
    config = load_config("fivedoctors", "gpt", training="cpu", stand_ins={"rag": True}, **files)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=17_200_000_000))
    monkeypatch.setattr("pipelines.checks.sizing.check.host_bytes", lambda: 64_000_000_000)
    day, folder = date(2028, 1, 1), tmp_path / "run"

    by_subject: dict[str, list[Check]] = {}
    for check in profile_checks(config, folder, day, cluster=False):
        by_subject.setdefault(check.subject, []).append(check)
    plan = make_plan(config, day, snapshot=True)
    with pytest.raises(ConfigError) as refused:
        check_room(config, folder, plan.stages)

    assert [check.what for check in by_subject["plan"]] == list(plan.warnings)
    assert [check.what for check in by_subject["promotion"]] == [why.reason for why in plan.promotion.obstacles]
    assert [(check.what, *check.more) for check in by_subject["room"]] == [tuple(refused.value.lines)]
    assert [check.state for check in by_subject["memory"]] == ["ok"]
    monkeypatch.setattr("pipelines.checks.sizing.check.host_bytes", lambda: 12_000_000_000)
    on_cluster, here = (
        [check for check in profile_checks(config, folder, day, cluster=cluster) if check.subject == "memory"]
        for cluster in (True, False)
    )
    assert [check.state for check in (*on_cluster, *here)] == ["ok", "error"]
    assert "there are 12.0" in here[0].what
    assert any("ppo needs 20.4 GB of host" in line for line in here[0].more)
    assert any(warning.startswith("80 of 300 training rows nearly repeat") for warning in plan.warnings)
    assert any("read it again" in warning for warning in plan.warnings)
    assert "there are 17.2" in by_subject["room"][0].what and by_subject["room"][0].state == "error"
    assert by_subject["sheet"] == [Check("ok", "sheet", "304 questions, counted as `qinglan plan` counts them.")]


def test_a_platform_is_told_part_by_part() -> None:
    whole = {check.subject: check for check in platform_checks(PLATFORM)}
    bare = {check.subject: check for check in platform_checks(Platform("https://c", "v1.34.1", {}, {}, (), ""))}

    assert worst_state(list(whole.values())) == "ok"
    assert whole["KServe"].what == "serving.kserve.io/v1beta1, kserve-controller:v0.16.0."
    assert [name for name, check in bare.items() if check.state == "error"] == [
        "KServe", "training-operator", "ModelRollout"
    ]  # fmt: skip
    assert bare["training-operator"].next_step.startswith("kubectl apply --server-side")
    assert (bare["storage"].state, bare["Knative"].state) == ("warning", "ok")


@pytest.mark.slow
def test_the_command_checks_a_profile_with_its_rag_service_and_ends_with_its_worst_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "LEAST_DISK_GB", 0.0)  # whatever else fills the disk of the machine that tests
    splits = ["train"] * 198 + ["dev", "test"]
    rows = [{"问题": f"虾青素怎么吃{number}", "划分": split} for number, split in enumerate(splits)]
    (tmp_path / "q.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))

    def examined(rag: dict[str, Any]) -> tuple[int, dict[str, list[Check]]]:
        path = tmp_path / "mine.yaml"
        model = {"model": "fivedoctors", "price": PRICE}
        gateway = {"teacher": model, "judge": model, "examiner": {**model, "model": "x"}, "rag": rag}
        path.write_text(yaml.safe_dump({"stand_ins": {"teacher": True}, "training": "laptop", "gateway": gateway}))
        result = CliRunner().invoke(app, [
            "doctor", "fivedoctors", "--profile", str(path), "--questions", str(tmp_path / "q.jsonl"),
            "--knowledge-base", str(tmp_path / "kb.jsonl"), "--json",
        ])  # fmt: skip
        checks: dict[str, list[Check]] = {}
        for values in orjson.loads(result.stdout)["checks"]:
            checks.setdefault(values["subject"], []).append(Check(**values))
        return result.exit_code, checks

    calibration = {"fivedoctors": {"scale": "logit", "slope": 1.0, "intercept": 0.0}}
    with company_rag(tmp_path) as (url, _):
        wrong, uncalibrated = examined({"base_url": url})
        right, calibrated = examined({"base_url": url, "calibration": calibration})

    assert (wrong, right) == (2, 0)
    assert "calibration.fivedoctors" in uncalibrated["RAG"][0].what
    assert [check.state for check in calibrated["RAG"]] == ["ok", "warning", "warning"]
    assert [check.state for check in calibrated["files"]] == ["ok"]
    assert [check.state for check in calibrated["sheet"]] == ["ok"]


def test_a_profile_that_cannot_be_read_is_one_error_among_the_others() -> None:
    result = CliRunner().invoke(app, ["doctor", "nobody", "--json"])
    states = {check["subject"]: check["state"] for check in orjson.loads(result.stdout)["checks"]}

    assert result.exit_code == 2
    assert states["profile"] == "error" and states["python"] == "ok"


def test_without_a_kubeconfig_the_cluster_is_one_error_that_says_so() -> None:
    result = CliRunner().invoke(app, ["doctor", "--cluster"])

    assert result.exit_code == 2
    assert "KUBECONFIG" in result.output
