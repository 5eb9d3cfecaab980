"""From a company's own sheet, documents, RAG service and provider to a report, by the commands that a user types.

sheet, 资料/ -> init -> doctor -> check-rag -> plan -> run -> report.html

The service speaks only the plan's contract: logits, a token, no snapshot. The provider has DeepSeek's rules: it
refuses a JSON schema. No file of the project is edited; the trainings are too short to learn much.

`init` and `run`, its servers and its steps start as a user starts them. The other commands, the trainings and the
students' servers are forks: that those start by themselves is tested in components/training and serving/rewriter.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
import yaml

from qinglan.config import load_yaml, merge_settings
from qinglan.processes.services import free_port, run_service
from tests.commands.companies import write_company
from tests.commands.demo.new_tenant_run import SHORTEST
from tests.processes.forked_runs import forks_variables, swift_sockets, verl_socket
from tests.processes.forkserver import GATEWAY, MODELS, forked, socket_path

pytestmark = pytest.mark.slow

QINGLAN = Path(sys.executable).parent / "qinglan"
TOKEN = "the-companys-own-token"
PAID_MODELS = ("deepseek-flash", "deepseek-v4-pro", "gpt-5.6-sol")


class Ended(NamedTuple):
    code: int
    out: str
    errors: str


class User:
    """A person at a terminal, in a folder of the company."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        forks = forks_variables(swift_sockets() | verl_socket() | {"serving.rewriter": socket_path(MODELS)})
        self.environment = os.environ | forks | {"RAG_TOKEN": TOKEN}

    def types(self, line: str, *more: str) -> Ended:
        command = line.split()[0]
        program = (
            [str(QINGLAN)]
            if command in ("init", "run")
            else forked("tests.processes.qinglan_command", libraries=GATEWAY)
        )
        words = [*program, *line.split(), *more]
        ended = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=900, check=False
        )
        return Ended(ended.returncode, ended.stdout, " ".join(ended.stderr.split()))


@contextmanager
def company_services(tenant: Path, port: int) -> Iterator[str]:
    """The company's RAG service on its port, and the address of the provider."""
    base, logs = f"acme={tenant / 'knowledge_base.jsonl'}", tenant.parents[1] / "logs"
    rag = ["--kb", base, "--index-root", str(logs / "index"), "--token", TOKEN, "--port", str(port)]
    teacher = ["--kb", base, "--port", "0"]
    for model in PAID_MODELS:
        teacher += ["--variant", f'{model}={{"tenant": "acme"}}']
    with (
        run_service("standins.company_rag", rag, logs / "rag.log"),
        run_service("standins.teacher", teacher, logs / "teacher.log") as provider,
    ):
        yield provider


def edit_profile(path: Path, changes: dict[str, Any]) -> None:
    settings = merge_settings(load_yaml(path), changes)
    path.write_text(yaml.safe_dump(settings, allow_unicode=True, sort_keys=False), encoding="utf-8")


def name_provider(path: Path, provider: str) -> None:
    """Write the provider's address. DeepSeek's larger model judges, so that judgements go by its rules too."""
    settings = load_yaml(path)
    gateway = settings["gateway"]
    gateway["judge"], gateway["examiner"] = gateway["examiner"], gateway["judge"]
    for role in ("teacher", "judge", "examiner"):
        gateway[role]["base_url"] = provider
    path.write_text(yaml.safe_dump(settings, allow_unicode=True, sort_keys=False), encoding="utf-8")


def test_a_company_comes_from_its_folder_to_a_report_by_commands_alone(tmp_path: Path) -> None:
    write_company(tmp_path)
    user, port = User(tmp_path), free_port()
    rag, tenant = f"http://127.0.0.1:{port}", tmp_path / "tenants" / "acme"
    profile = tenant / "deepseek.yaml"

    screen = user.types(
        f"init acme 客服记录.xlsx --knowledge-base 资料 --domain 户外用品 --teacher deepseek --rag {rag} "
        "--training laptop --language zh --yes"
    )
    assert screen.code == 0, screen.errors
    assert "96 questions of 97 rows; question = 用户问句" in screen.out and "资料/tent.pdf: 1 passage\n" in screen.out

    waits = user.types("doctor acme --profile deepseek --json")
    assert waits.code == 2, waits.errors
    amiss = [check["subject"] for check in orjson.loads(waits.out)["checks"] if check["state"] == "error"]
    assert amiss == ["hosts", "keys", "keys", "RAG"]

    user.environment |= {"QINGLAN_ALLOWED_HOSTS": "127.0.0.1", "DEEPSEEK_API_KEY": "k", "OPENAI_API_KEY": "k"}
    with company_services(tenant, port) as provider:
        name_provider(profile, provider)
        edit_profile(profile, merge_settings(SHORTEST, {"base": {"tiny": {"steps": 120}}, "sft": {"epochs": 4.0}}))
        locked_out = user.types("plan acme --profile deepseek")
        assert "it requires a token or a key: gateway.rag.headers" in " ".join(locked_out.errors.split())

        checked = user.types(
            "check-rag --tenant acme --profile deepseek --json --header", "Authorization: Bearer $RAG_TOKEN"
        )
        assert checked.code == 0, checked.errors
        lines = orjson.loads(checked.out)["settings"]
        assert lines["gateway"]["rag"]["calibration"]["acme"]["scale"] == "logit"
        del lines["gateway"]["rag"]["snapshot_queries"]  # a run chooses them itself
        edit_profile(profile, lines)

        schema = user.types("doctor acme --profile deepseek --paid --set gateway.judge.answer_format=json_schema")
        assert schema.code == 2 and "refuses a JSON schema with 400: set answer_format: json_object" in schema.out
        healthy = user.types("doctor acme --profile deepseek --paid")
        assert healthy.code == 0, healthy.out
        assert "ok judge deepseek-v4-pro answered" in " ".join(healthy.out.split())

        plan = user.types("plan acme --profile deepseek --json")
        planned = orjson.loads(plan.out)
        assert plan.code == 0 and (planned["rows"], planned["unfit"], planned["missing"]) == (96, 1, [])
        assert not planned["promotion"]["possible"]

        ran = user.types("run acme --profile deepseek --yes")

    assert ran.code == 7, ran.errors
    assert "Too few: 0 queries with gold passages were compared" in ran.out
    files = tmp_path / "runs" / "acme-deepseek" / "files"
    report = (files / "report.html").read_text(encoding="utf-8")
    assert "Rows without gold" in report and "Hold" in report
    evaluation = orjson.loads((files / "evaluation.json").read_bytes())
    assert {"plain", "teacher", "sft", "rl"} <= set(evaluation["systems"])
    assert orjson.loads((files / "label_report.json").read_bytes())["outcomes"]["relevant"] > 40
    record = orjson.loads((files.parent / "run.json").read_bytes())
    steps = record["gateway"]["by_step"]
    assert {step["step"] for step in steps} == {
        "generate", "validate", "label", "augment", "reward", "evaluate",
    }  # fmt: skip
    assert next(step["attempts"] for step in steps if step["step"] == "generate") == 96
    assert 0 < record["gateway"]["cost"] <= planned["cost"]
    assert load_yaml(files.parent / "config.yaml")["gateway"]["rag"]["snapshot_queries"]
    assert TOKEN not in "".join(path.read_text("utf-8", "replace") for path in (files.parent / "logs").iterdir())
