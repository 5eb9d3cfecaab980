"""The style line as a user runs it: the same graph as on the cluster, in real processes, with a tiny model."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx
import orjson
import pytest
import yaml
from openpyxl import load_workbook

from pipelines.graph.compiler import compile_targets, style_target
from pipelines.lines.config import STYLES, load_style_config
from pipelines.lines.style import STYLE
from qinglan.config import load_yaml, merge_settings
from qinglan.files.digests import digest
from qinglan.lineage.auditing.deploy_gate import may_deploy
from qinglan.lineage.signing.keys import keys_folder
from qinglan.lineage.signing.trust import TRUST_FILE, load_trust
from qinglan.processes.services import run_service
from qinglan.style.labels import format_training_text
from qinglan.style.model import read_card
from standins.samples.style import write_style_sample
from tests.commands.conftest import Here
from tests.processes.forked_runs import fork_environment
from tests.screens.browser import open_page
from tests.wide_limits.sitecustomize import WIDE_VARIABLE, wide_limits

SHORT = {
    "prepare": {"cross_fit_below": 0},  # these trainings have a locked test
    "base": {"tiny": {"vocabulary": 1200, "hidden": 32, "layers": 2, "heads": 2, "steps": 60, "batch": 16}},
    "style": {"epochs": 2.0, "batch": 16},
    "evaluate": {"draws": 1_000, "blind_rows": 10},
}
GATE = {"rows": 50, "class_rows": 1, "class_margin": 1.0, "ece": 1.0, "ece_worse": 1.0, "teacher_margin": 1.0}
BEATEN = {"evaluate": {"baseline_c": [1e-9], "gate": GATE}}
"""A baseline so regularised that it says the same of everything, and a gate beyond the limits."""


@pytest.fixture(autouse=True, scope="module")
def limits() -> Iterator[None]:
    """So short trainings leave no model that a gate within the limits promotes."""
    with patch.dict(os.environ, {WIDE_VARIABLE: "1"}), wide_limits():
        yield


PROGRAM = """
import sys
from kfp import components, local

graph, labelled, root = sys.argv[1:]
local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=root)
components.load_component_from_file(graph)(labelled=labelled, release_name="house/tried")
"""


class Ran(NamedTuple):
    code: int
    out: str
    errors: str

    @property
    def record(self) -> Any:
        return orjson.loads(self.out)


def qinglan(*words: str | Path, environment: dict[str, str] | None = None) -> Ran:
    command = [sys.executable, "-c", "from commands.cli import main; main()", *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, env=environment)
    return Ran(run.returncode, run.stdout, run.stderr)


@pytest.mark.parametrize("path", sorted(STYLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_profile_is_read(path: Path) -> None:
    config = load_style_config(path.stem, labelled=Path("x.json"))

    assert tuple(config.stages()) == STYLE.until("register_small"), "nobody asks for a rollout"


def test_smaller_machines_train_the_plans_model_with_the_plans_rows_a_step() -> None:
    for profile in ("cpu", "one-gpu-24"):
        config = load_style_config(profile, labelled=Path("x.json"))

        assert config.base.model == "Qwen/Qwen2.5-0.5B-Instruct"
        assert (config.style.batch * config.style.accumulation, config.style.epochs) == (4, 3)


def test_a_mapping_file_travels_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("- {name: 甲, english: a, id: 0}\n- {name: 乙, english: b, id: 1}\n")

    config = load_style_config("laptop", labelled=Path("x.json"), labels=tmp_path / "two.yaml")

    assert [label["name"] for label in config.stages()["prepare"]["labels"]] == ["甲", "乙"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("style")
    write_style_sample(folder / "data", 400, seed=3)
    profile = merge_settings(load_yaml(STYLES / "laptop.yaml"), SHORT)
    (folder / "short.yaml").write_text(yaml.safe_dump(profile))
    (folder / "beaten.yaml").write_text(yaml.safe_dump(merge_settings(profile, BEATEN)))
    return folder


@pytest.fixture(scope="module")
def held(folder: Path) -> Ran:
    """A run whose gate holds."""
    return run_style(folder, "short.yaml")


@pytest.fixture(scope="module")
def promoted(held: Ran, folder: Path) -> Ran:
    """In the same folder, behind a gate that promotes."""
    return run_style(folder, "beaten.yaml")


def run_style(folder: Path, profile: str) -> Ran:
    words = ("--profile", folder / profile, "--out", folder / "run", "--json")
    return qinglan("style", "run", folder / "data", *words, environment=fork_environment())


@pytest.mark.slow
def test_a_gate_that_promotes_goes_on(folder: Path, promoted: Ran, here: Here) -> None:
    assert promoted.code == 0, promoted.errors
    steps, files = promoted.record["steps"], folder / "run" / "files"
    assert [steps[stage]["status"] for stage in STYLE.until("gate_small")] == ["done"] * 9
    assert steps["style"]["facts"]["reused"] == 1  # the gate's settings are no reason to train again
    assert steps["evaluate"]["facts"]["judged_models"] == 1, "the same model, judged a second time"
    assert any(
        line.startswith("Models that this locked test has judged: 1;")
        for line in promoted.record["verdict"]["reasons"]
    )
    assert len(list((folder / "store" / "tests").glob("*/style/*"))) == 1, "beside the runs, in no run's folder"
    model = digest(files / "style_model")
    assert steps["evaluate"]["inputs"]["style_model"]["sha256"] == model
    assert read_card(files / "student_model").parents["teacher"] == model
    check_files_open_by_their_paths(files, folder)
    answers = folder / "answers.jsonl"
    answers.write_bytes(orjson.dumps({"text": format_training_text("想退货", "我马上为您处理")}) + b"\n")
    for engine in ("torch", "onnx"):
        output = here("style", "predict", answers, "--model", files / "student_model", "--engine", engine, "--json")
        assert output.code == 0, output.errors
        [line] = (folder / "answers-style.jsonl").read_bytes().splitlines()
        assert sum(orjson.loads(line)["probabilities"].values()) == pytest.approx(1)


@pytest.mark.slow
def test_the_small_models_release_is_served_as_it_was_judged(folder: Path, promoted: Ran) -> None:
    """The registered int8 weights, by their runtime's command; deploy gate and server check their statements."""
    files = folder / "run" / "files"
    release, policy = files / "small_release", load_trust(keys_folder() / TRUST_FILE)
    assert promoted.record["small_verdict"]["word"] == "promote"
    assert promoted.record["steps"]["register_small"]["facts"]["name"] == "house/style-small"
    evaluation = orjson.loads((release / "evaluation.json").read_bytes())
    assert evaluation["digests"]["model"] == digest(release / "model")
    assert any("int8 graph is judged" in note for note in evaluation["notes"])

    decision = may_deploy(release, policy, "house/style-small")
    assert decision.allowed, decision.reasons
    assert not may_deploy(release, policy, "house/style").allowed, "another line's name is another chain"

    [test] = [path for path in (files / "style_rows").iterdir() if path.name == "test.jsonl"]
    text = orjson.loads(test.read_bytes().splitlines()[0])["input"]
    judged = orjson.loads((files / "small_predictions.jsonl").read_bytes().splitlines()[0])["model"]
    runtime = load_yaml(Path("manifests/base/runtimes/style-onnx.yaml"))["spec"]["containers"][0]
    assert "--engine=onnx" in runtime["args"]
    options = ["--model", str(release / "model"), "--engine", "onnx", "--port", "0"]
    log = folder / "style-small.log"
    with patch.dict(os.environ, fork_environment()), run_service("serving.style", options, log) as url:
        served = httpx.post(f"{url}/predict", json={"text": text}, timeout=60).json()
        which = httpx.get(f"{url}/model", timeout=60).json()
    assert which["sha256"] == evaluation["digests"]["model"]
    assert served["probabilities"] == pytest.approx(judged["probabilities"], abs=1e-5)
    assert "unproven" not in log.read_text()


@pytest.mark.slow
def test_the_yaml_itself_loaded_as_kfp_loads_it_promotes_to_a_release(
    folder: Path, promoted: Ran, tmp_path: Path
) -> None:
    """It finds the trainings of the run before it, as a cluster's run does on its volume."""
    steps = run_compiled(folder, tmp_path)

    assert tuple(steps) == STYLE.until("register_small")
    assert {record["status"] for record in steps.values()} == {"done"}
    assert steps["style"]["facts"]["reused"] == 1
    assert steps["register"]["facts"]["name"] == "house/tried"  # the run's own word for it
    assert steps["register_small"]["facts"]["name"] == "house/tried-small"
    assert steps["register_small"]["facts"]["model"] == steps["distil"]["outputs"]["student_model"]["sha256"]
    assert shown(tmp_path, "gate-style", "decision").startswith("**Promote**")
    assert steps["register"]["facts"]["release"] in shown(tmp_path, "register-style", "summary")


@pytest.mark.slow
def test_a_promoted_model_of_cross_fitted_rows_is_released_and_the_run_ends_well(
    folder: Path, tmp_path: Path
) -> None:
    write_style_sample(tmp_path / "data", 120, seed=3)
    profile = merge_settings(load_yaml(folder / "beaten.yaml"), {"prepare": {"cross_fit_below": 200, "folds": 2}})
    (tmp_path / "folds.yaml").write_text(yaml.safe_dump(profile))
    words = ("--profile", tmp_path / "folds.yaml", "--out", tmp_path / "run")

    ended = qinglan("style", "run", tmp_path / "data", *words, environment=fork_environment())

    assert ended.code == 0, ended.errors
    assert "Released; no small model is made" in ended.out and "Cross-fitted: 120 rows" in ended.out
    assert (tmp_path / "run" / "files" / "release").is_dir()
    assert not (tmp_path / "run" / "records" / "distil.json").exists()


def run_compiled(folder: Path, out: Path) -> dict[str, Any]:
    """Compile the profile whose gate promotes, and run the YAML; return each step's record."""
    [graph] = compile_targets([style_target(str(folder / "beaten.yaml"))], out / "graphs", {})
    # kfp.local, unlike a cluster, calls an importer's output `artifact` whatever the graph calls it.
    text = graph.read_text(encoding="utf-8")
    graph.write_text(text.replace("outputArtifactKey: labelled\n", "outputArtifactKey: artifact\n"), encoding="utf-8")
    records = out / "records"
    records.mkdir()
    folders = {"QINGLAN_RECORDS": records, "QINGLAN_SCRATCH": folder / "run" / "scratch", "TMPDIR": out}
    env = fork_environment() | {name: str(path) for name, path in folders.items()}
    words = [sys.executable, "-c", PROGRAM, str(graph), str(folder / "data"), str(out / "artifacts")]
    ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=1200, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-2000:]
    paths = {stage: records / f"{stage}.json" for stage in STYLE.stages}
    return {stage: orjson.loads(path.read_bytes()) for stage, path in paths.items() if path.exists()}


def shown(out: Path, step: str, artifact: str) -> str:
    """Text of an artifact for KFP's page."""
    [written] = (out / "artifacts").glob(f"*/{step}/{artifact}*")
    return written.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_of_other_data_leaves_no_file_of_the_one_before(folder: Path, promoted: Ran) -> None:
    words = ("--until", "prepare", "--out", folder / "run", "--json")
    command = ("style", "run", folder / "data" / "style.xlsx", *words)
    environment = fork_environment(models=False)
    refused = qinglan(*command, environment=environment)
    (folder / "run" / "config.yaml").unlink()
    fresh = qinglan(*command, environment=environment)

    assert refused.code == 2 and "its run began with --labelled" in refused.errors
    assert (fresh.code, fresh.record["verdict"]) == (0, {}), fresh.errors
    assert [stage for stage, step in fresh.record["steps"].items() if step] == ["prepare"]
    files = folder / "run" / "files"
    assert not (files / "style_model").exists() and (files / "style_rows").exists()


def check_files_open_by_their_paths(files: Path, folder: Path) -> None:
    for name, title, words in (
        ("report.html", "Promote: the style model", "locked answers"),
        ("style_curve.html", "Training", "Style: loss and macro-F1 by step"),
        ("distribution.html", "Labels", "400 labelled answers"),
    ):
        page = open_page(files / name, folder / "browser")
        assert page.title.startswith(title)
        assert words in page.text and "<title>" not in page.text
    assert load_workbook((files / "blind_sample.xlsx").resolve(), read_only=True).sheetnames


@pytest.mark.slow
def test_a_row_without_an_answer_ends_with_code_3_and_every_row_written(here: Here, tmp_path: Path) -> None:
    from tests.models.tiny_style import tiny_style_model

    (tmp_path / "in.jsonl").write_bytes(b'{"text": "a"}\n{}\n')

    output = here("style", "predict", tmp_path / "in.jsonl", "--model", tiny_style_model(tmp_path / "model"))

    assert output.code == 3
    assert "1 of 2 rows" in output.errors and "line 2: no text" in output.errors
    assert len((tmp_path / "in-style.jsonl").read_bytes().splitlines()) == 2


@pytest.mark.slow
def test_an_answer_on_the_command_line_gets_its_style(here: Here, tmp_path: Path) -> None:
    from tests.models.tiny_style import tiny_style_model

    model = tiny_style_model(tmp_path / "model")
    words = ["--question", "这个产品有什么优缺点？", "--answer", "有很多优点，也有一些限制。", "--model", model]
    body = orjson.loads(here("style", "predict", *words, "--json").out)

    assert sum(body["probabilities"].values()) == pytest.approx(1, abs=1e-4)
    assert here("style", "predict", *words).out.startswith(f"{body['predicted_label']} {body['confidence']:.2f}")
    assert here("style", "predict", "--model", model).code == 2


def test_a_profile_that_names_a_store_alone_keeps_the_releases_name(tmp_path: Path) -> None:
    config = load_style_config("laptop", labelled=tmp_path, register={"store": "s3://models"})

    assert (config.register_.name, config.register_.store) == ("house/style", "s3://models")
    assert config.stages()["register"]["store"] == "s3://models"
