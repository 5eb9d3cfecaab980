"""A release as the register stage writes it: a tiny real model, real keys, the lineage of a short line of stages."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from components.release.register.config import RegisterConfig
from components.release.register.stage import Inputs, Registered, register
from qinglan.evaluation.gates.rewriter_gate import GateConfig, decide
from qinglan.files.digests import digest
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from qinglan.lineage.signing.trust import TRUST_FILE, TrustPolicy, ensure_keys, load_trust
from qinglan.lineage.steps.record import recorded
from qinglan.lineage.steps.step_inputs import add_student_prompts, add_verdict
from qinglan.rewriter.card import RewriterCard, write_card
from tests.qinglan.evaluation.gates.test_rewriter_gate import good

NAME = "fivedoctors/rewriter"
Json = dict[str, Any]


class Thing:
    """The part of a KFP artifact that a step needs."""

    schema_title = "system.Artifact"

    def __init__(self, path: Path) -> None:
        self.metadata: Json = {}
        self.path = str(path)
        self.uri = f"s3://qinglan/{path.name}"


class SignedRelease(NamedTuple):
    """A release, and everything around it."""

    folder: Path
    inputs: Inputs
    keys: Path
    registered: Registered

    @property
    def policy(self) -> TrustPolicy:
        return load_trust(self.keys / TRUST_FILE)


def tiny_weights(folder: Path, values: tuple[float, ...] = (0.5, -1.0, 2.0, 0.25)) -> Path:
    """A model's folder of a few bytes: real safetensors, and JSON and text as beside any model."""
    import numpy as np
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    save_file(
        {"embed": np.array([values], dtype="<f4"), "head": np.array(values, "<f4")}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(f'{{"model_type": "qwen3", "initializer_range": {values[0]}}}')
    (folder / "tokenizer.json").write_text(f'{{"version": "{values[0]}"}}')
    (folder / "chat_template.jinja").write_text(f"{{{{ messages }}}} {values[0]}")
    write_card(folder, RewriterCard(stage="ppo", system_prompts={"fivedoctors": str(values[0])}))
    return folder


def judged(model: Path, lead: float = 0.06) -> Json:
    """Figures that promote, about this model, which leads the teacher by so much."""
    result = copy.deepcopy(good())
    result["paired"]["rl_vs_teacher"].update(metric="top1", difference=lead)
    result["systems"]["rl"]["top1"] = {"value": 0.88, "low": 0.85, "high": 0.91, "n": 1000}
    result["systems"]["rl"]["quality"] = {"value": 4.6, "low": 4.5, "high": None}
    result["digests"]["models"]["rl"] = digest(model)
    result["digests"] |= {"training": {"sft": "b" * 64, "ppo": "c" * 64}, "test": "d" * 64}
    return {**result, "settings": {"gate": {}}}


def write_judged(path: Path, evaluation: Mapping[str, Any]) -> Path:
    path.write_bytes(orjson.dumps(evaluation, option=orjson.OPT_INDENT_2))
    return path


def write_lineage(
    folder: Path, model: Path, evaluation: Path, report: Path, prompts: Mapping[str, str] | None = None
) -> Path:
    """Write the records of convert, base, ppo, evaluate and gate, signed by the builder. `prompts`: of its rows."""
    things = {name: Thing(folder / name) for name in ("chats", "base_model")}
    for thing in things.values():
        Path(thing.path).parent.mkdir(parents=True, exist_ok=True)
        Path(thing.path).write_text(thing.uri)
    steps: list[tuple[str, dict[str, Thing], dict[str, Thing]]] = [
        ("convert", {}, {"chats": things["chats"]}),
        ("base", {}, {"base_model": things["base_model"]}),
        ("ppo", {"base_model": things["base_model"], "chats": things["chats"]}, {"rl_model": Thing(model)}),
        ("evaluate", {"rl_model": Thing(model)}, {"evaluation": Thing(evaluation), "report": Thing(report)}),
        ("gate", {"evaluation": Thing(evaluation)}, {}),
    ]
    before = None
    for stage, used, outputs in steps:
        lineage = Thing(folder / f"lineage-{stage}")
        with recorded(stage, used, outputs, {"seed": 1}, lineage, before) as step:
            if stage == "convert":
                step.facts.update(sft_train=400, sft_dev=50, ppo_train=300, ppo_dev=40, test=1000)
                add_student_prompts(step, prompts or {})
            if stage == "gate":
                add_verdict(step, decide(orjson.loads(evaluation.read_bytes()), GateConfig()))
        before = lineage
    assert before is not None
    return Path(before.path)


def make_inputs(folder: Path, model: Path, lead: float = 0.06, prompts: Mapping[str, str] | None = None) -> Inputs:
    """Everything that the register stage takes."""
    evaluation = write_judged(folder / "evaluation.json", judged(model, lead))
    report = folder / "report.html"
    report.write_text(f"<!doctype html><title>{lead:+.1%}</title>", encoding="utf-8")
    return Inputs(evaluation, model, report, write_lineage(folder / "run", model, evaluation, report, prompts))


def make_held_inputs(folder: Path) -> Inputs:
    """A model whose gate said hold, with the lineage that says so."""
    model = tiny_weights(folder / "rl_model")
    figures = judged(model)
    figures["paired"]["rl_vs_teacher"]["low"] = -0.2
    evaluation, report = write_judged(folder / "evaluation.json", figures), folder / "report.html"
    report.write_text("<!doctype html><title>Hold</title>", encoding="utf-8")
    return Inputs(evaluation, model, report, write_lineage(folder / "run", model, evaluation, report))


def use_keys(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Keys of this test alone."""
    patch.setenv(KEYS_VARIABLE, str(folder))
    ensure_keys(folder)
    return folder


def make_release(folder: Path, keys: Path, name: str = NAME, first: float = 0.5, lead: float = 0.06) -> SignedRelease:
    """The keys must be in use already."""
    folder.mkdir(parents=True, exist_ok=True)
    inputs = make_inputs(folder, tiny_weights(folder / "rl_model", (first, -1.0, 2.0, 0.25)), lead)
    done = register(inputs, folder / "release", RegisterConfig(name=name, base="Qwen/Qwen3-32B"))
    return SignedRelease(folder / "release", inputs, keys, done)
