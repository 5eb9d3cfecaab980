"""The whole thread in one file, without an orchestrator: from a spreadsheet of questions to the gate's verdict.

    python -m examples.thread OUT [CONVERSATIONS]

Read it from top to bottom: each call is the plain function of one stage, on paths. `qinglan run` calls the same
functions as KFP components, signs what each of them takes and makes, and adds a release and its rollout. The teacher
and the RAG service are stand-ins on loopback: no key, no network. `make demo` has 1,600 conversations.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from commands.run.run import start_services
from components.data.augment import stage as augment
from components.data.augment.cases import Inputs
from components.data.convert.stage import convert
from components.data.generate.stage import generate
from components.data.label import stage as label
from components.data.validate.stage import validate
from components.evaluation.rewriter.stage import evaluate
from components.training.base.stage import base
from components.training.ppo.stage import ppo
from components.training.sft.stage import sft
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import RunConfig
from qinglan.evaluation.gates.evaluation_file import Outputs, read_evaluation
from qinglan.evaluation.gates.kinds import REWRITER
from qinglan.terminal import say
from standins.samples import write_sample


def run_thread(config: RunConfig, root: Path, gateway: str) -> dict[str, Any]:
    """Run each stage on files below `root`; the answer is the evaluation with its verdict."""
    questions, knowledge_base = config.questions, config.knowledge_base
    assert questions and knowledge_base

    # Data: the teacher rewrites each question; a search with the rewrite says if it is accepted.
    rewrites, validated, labels = root / "rewrites.jsonl", root / "validated.jsonl", root / "labels"
    generate(questions, rewrites, root / "rewrites.xlsx", root / "q1.jsonl", config.generate, gateway)
    validate(
        rewrites, knowledge_base, validated, root / "validated.xlsx", root / "q2.jsonl", config.validate_, gateway
    )
    labelled = label.Outputs(labels, root / "labels.xlsx", root / "holes.jsonl", root / "labels.html")
    label.label(validated, labelled, config.label, gateway)

    # Splits by conversation: chats for SFT, prompts for PPO, and a test that no training sees.
    chats, prompts, test = root / "sft", root / "ppo", root / "locked_test.jsonl"
    convert(validated, chats, prompts, test, root / "left_out.jsonl", config.convert, labels)
    more = augment.Outputs(
        root / "augmented_sft", root / "augmented_ppo", root / "augment_left_out.jsonl", root / "augment.json"
    )
    augment.augment(Inputs(chats, prompts, test, knowledge_base), more, config.augment, gateway)

    # Training: the student learns the teacher's rewrites, then competes with the teacher; retrieval is the judge.
    start, learned, model = root / "base_model", root / "sft_model", root / "rl_model"
    sft_log, ppo_log = root / "sft_log", root / "ppo_log"
    base(knowledge_base, prompts, start, config.base)
    sft(start, more.augmented_chats, learned, sft_log, config.sft, gateway_url=gateway)
    ppo(learned, more.augmented_prompts, model, ppo_log, gateway, config.ppo)

    # Evaluation: all systems on the same locked questions; the gate decides by the figures alone.
    names = ("evaluation.json", "report.html", "predictions.jsonl", "blind_sample.xlsx", "blind_key.json")
    outputs = Outputs(*(root / name for name in names))
    models, logs = {"sft": learned, "rl": model}, {"sft": sft_log, "ppo": ppo_log}
    learned_rows = {"sft": more.augmented_chats, "ppo": more.augmented_prompts}
    evaluate(test, models, learned_rows, logs, outputs, config.evaluate, gateway)
    return read_evaluation(outputs.evaluation)


def main(root: Path, conversations: int = 400, **settings: Any) -> None:
    data, run = root / "data", RunDir(root)
    say(write_sample("fivedoctors", data, conversations, seed=0).in_words())
    sheets = {"questions": data / "questions.xlsx", "knowledge_base": data / "knowledge_base.jsonl"}
    config = load_config("fivedoctors", "demo", **sheets, **settings)
    with ExitStack() as services:
        gateway = start_services(config, run, ("generate", "evaluate"), services)
        verdict = REWRITER.verdict(run_thread(config, root, gateway), "evaluation.json")
    say(f"The gate says: {verdict.word}.", *verdict.reasons, f"Report: {root / 'report.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
