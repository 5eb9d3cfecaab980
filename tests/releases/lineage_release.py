"""A release of the rewriter's line, from statements of every stage; the bytes are a few letters each."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qinglan.files.digests import digest
from qinglan.lineage.signing.statement import EXTERNAL_INPUT, ArtifactRef
from qinglan.lineage.trace.release_folder import verdict_file_name
from tests.qinglan.evaluation.gates.test_rewriter_gate import good
from tests.releases.lineage_world import TENANT, Keys, output, paid_paper, part_of, sealed, sha, source

Change = Callable[[dict[str, dict[str, Any]]], None]
"""A change of the stages before they are signed."""


def code(dirty: bool = False) -> ArtifactRef:
    return ArtifactRef("code", "a" * 40, "", {EXTERNAL_INPUT: True, "dirty": dirty}, "gitCommit")


def stages(model: ArtifactRef, evaluation: ArtifactRef, verdict: ArtifactRef) -> dict[str, dict[str, Any]]:
    """Everything that the stages of the rewriter's line say, in order."""
    paid = {name: source("journal", f"journal-{name}", answers=10, cost=0.5) for name in PAID}
    return {
        "generate": {
            "made": [output("rewrites", rows=100)],
            "used": [source("questions"), paid["generate"], source("prices"), source("prompt teacher"), KB, code()],
            "config": {"tenant_id": TENANT, "teacher": {"temperature": 0.3}},
        },
        "validate": {
            "made": [output("validated", rows=90)],
            "used": [output("rewrites"), source("knowledge_base"), paid["validate"], source("prices"), KB,
                     source("prompt need")],
        },
        "convert": {
            "made": [output("chats", rows=60), output("prompts", rows=80), output("locked_test", rows=20)],
            "used": [output("validated")],
        },
        "base": {"made": [output("base_model")], "used": [source("knowledge_base"), output("prompts")]},
        "sft": {"made": [output("sft_model"), output("sft_log")], "used": [output("base_model"), output("chats")]},
        "ppo": {
            "made": [model, output("ppo_log")],
            "used": [output("sft_model"), output("prompts"), paid["ppo"], source("prices"), source("reward"), KB,
                     source("prompt judge")],
            "config": {"seed": 1, "steps": 48},
        },
        "evaluate": {
            "made": [evaluation, output("report")],
            "used": [output("locked_test"), output("sft_model"), model, paid["evaluate"], source("prices"), KB,
                     source("prompt judge"), output("chats"), output("prompts")],
        },
        "gate": {
            "made": [verdict], "used": [evaluation],
            "facts": {"verdict": "promote", "reasons": ["RL minus teacher +7.8 points"]},
        },
    }  # fmt: skip


def add_sibling(line: dict[str, dict[str, Any]], **sft: Any) -> None:
    """Let the evaluation be of a fold's SFT model, too, which is younger than the released model."""
    line["sft-fold-1"] = {
        "stage": "sft", "made": [output("sft_model", "fold-1")],
        "used": [output("base_model"), output("chats"), code()],
        "hours": (12.2, 12.8), **sft,
    }  # fmt: skip
    line["evaluate"]["used"].append(output("sft_model", "fold-1"))


PAID = ("generate", "validate", "ppo", "evaluate")
KB = source("knowledge base fivedoctors/default")


def write_release(
    folder: Path, keys: Keys, change: Change = lambda line: None, name: str = f"{TENANT}/rewriter",
    weights: str = "w", figures: Callable[[dict[str, Any]], None] = lambda figures: None,
) -> Path:  # fmt: skip
    """A release as the register stage leaves it, but for the OMS signature and the BOM. `figures` changes those."""
    (folder / "model").mkdir(parents=True)
    (folder / "lineage").mkdir()
    (folder / "model" / "model.safetensors").write_text(weights)
    (folder / "report.html").write_text("report")
    model = part_of("rl_model", folder / "model")
    evaluated = evaluation_of(model.digest)
    figures(evaluated)
    (folder / "evaluation.json").write_text(json.dumps(evaluated))
    evaluation = ArtifactRef("evaluation", digest(folder / "evaluation.json"))
    verdict = ArtifactRef("verdict", sha('{"word": "promote"}'))
    (folder / "lineage" / verdict_file_name(verdict.digest)).write_text('{"word": "promote"}')
    line = stages(model, evaluation, verdict)
    change(line)
    for number, (stage, step) in enumerate(line.items()):
        hours = step.get("hours", (2 * number + 1.0, 2 * number + 2.0))
        statement = sealed(
            step.get("key", keys.builder),
            step.get("stage", stage),
            step["made"],
            step["used"],
            hours,
            step.get("config"),
            step.get("facts"),
        )
        (folder / "lineage" / f"{stage}.dsse.json").write_bytes(statement)
        if calls := step.get("calls"):
            (folder / "lineage" / f"paid-{stage}.jsonl").write_bytes(paid_paper(dict.fromkeys(calls, b"answer")))
    (folder / "model.sig").write_text("signature")
    (folder / "mlbom.cdx.json").write_text("{}")
    (folder / "lineage" / "prompt-judge.txt").write_text("prompt judge")  # what source() takes for its bytes
    files = ["model", "model.sig", "mlbom.cdx.json", "evaluation.json", "report.html", "lineage"]
    files.append("lineage/prompt-judge.txt")
    statement_of_release = sealed(
        keys.releaser, "release", [part_of(file, folder / file) for file in files],
        [model, evaluation, verdict, code()], (100, 101), {"name": name},
    )  # fmt: skip
    (folder / "provenance.dsse.json").write_bytes(statement_of_release)
    return folder


def evaluation_of(model: str, top1: float = 0.82) -> dict[str, Any]:
    won = {"metric": "top1", "difference": 0.078, "low": 0.049, "high": 0.109, "p": 0.0001}
    figures = copy.deepcopy(good())
    figures["systems"]["rl"]["top1"] = {"value": top1, "low": top1 - 0.02, "high": top1 + 0.02, "n": 1071}
    figures["paired"]["rl_vs_teacher"].update(won)
    figures["agreement"] = {"judge": "small", "examiner": "large"}
    models = {**figures["digests"]["models"], "rl": model}
    figures["digests"] = {**figures["digests"], "models": models, "test": output("locked_test").digest}
    return figures
