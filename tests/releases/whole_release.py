"""A release with the whole line behind it, as the deploy gate wants it: every stage signed, everything named."""

import shutil
from pathlib import Path

import orjson

from components.release.register.config import RegisterConfig
from components.release.register.stage import Inputs, register
from qinglan.evaluation.gates.rewriter_gate import GateConfig, decide
from qinglan.lineage.signing.statement import EXTERNAL_INPUT, ArtifactRef
from qinglan.lineage.steps.record import recorded
from qinglan.lineage.steps.step_inputs import add_verdict
from tests.releases.registered_release import NAME, SignedRelease, Thing, judged, tiny_weights, write_judged

STAGES: tuple[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    ("generate", ("questions",), ("rewrites",), ("journal", "prices", "prompt teacher")),
    ("validate", ("rewrites", "knowledge_base"), ("validated",), ("journal", "prompt need")),
    ("convert", ("validated",), ("chats", "prompts", "locked_test"), ()),
    ("base", ("knowledge_base", "prompts"), ("base_model",), ()),
    ("sft", ("base_model", "chats"), ("sft_model",), ()),
    ("ppo", ("sft_model", "prompts"), ("rl_model",), ("journal", "prompt judge", "reward")),
    ("evaluate", ("locked_test", "rl_model"), ("evaluation", "report"), ("journal", "prompt judge")),
    ("gate", ("evaluation",), (), ()),
)
"""Each stage: what it takes, what it makes, and what it names beside that."""


def make_whole_release(
    folder: Path, keys: Path, name: str = NAME, first: float = 0.5, without: str = "", model: Path | None = None
) -> SignedRelease:
    """The keys must be in use already; `without` a stage's statement nobody can deploy it. `model`: a real one."""
    folder.mkdir(parents=True, exist_ok=True)
    if model is not None:
        model = shutil.copytree(model, folder / "rl_model")
    else:
        model = tiny_weights(folder / "rl_model", (first, -1.0, 2.0, 0.25))
    evaluation = write_judged(folder / "evaluation", judged(model))
    (folder / "report").write_text("<!doctype html><title>report</title>", encoding="utf-8")
    lineage = _write_lineage(folder, evaluation, without)
    inputs = Inputs(evaluation, model, folder / "report", lineage)
    done = register(inputs, folder / "release", RegisterConfig(name=name, base="Qwen/Qwen3-32B"))
    return SignedRelease(folder / "release", inputs, keys, done)


def _write_lineage(folder: Path, evaluation: Path, without: str) -> Path:
    before: Thing | None = None
    for stage, takes, makes, names in (stage for stage in STAGES if stage[0] != without):
        lineage = Thing(folder / f"lineage-{stage}")
        with recorded(stage, _things(folder, takes), _things(folder, makes), {"seed": 1}, lineage, before) as step:
            step.used.extend(
                ArtifactRef(stage, f"{at:x}" * 64, "", {EXTERNAL_INPUT: True}) for at, stage in enumerate(names, 10)
            )
            if stage == "convert":
                step.facts.update(sft_train=400, sft_dev=50, ppo_train=300, ppo_dev=40, test=1000)
            if stage == "gate":
                add_verdict(step, decide(orjson.loads(evaluation.read_bytes()), GateConfig()))
                step.facts.update(verdict="promote")
        before = lineage
    assert before is not None
    return Path(before.path)


def _things(folder: Path, names: tuple[str, ...]) -> dict[str, Thing]:
    for name in names:
        if not (folder / name).exists():
            (folder / name).write_text(name)
    return {name: Thing(folder / name) for name in names}
