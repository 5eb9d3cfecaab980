"""The evaluation and its gate as KFP components; they decide nothing."""

from kfp import dsl

from components.image import CPU_IMAGE, SERVE_IMAGE
from components.step_component import step_component


@step_component(SERVE_IMAGE)
def evaluate(
    before: dsl.Input[dsl.Artifact],
    locked_test: dsl.Input[dsl.Dataset],
    augmented_chats: dsl.Input[dsl.Dataset],
    augmented_prompts: dsl.Input[dsl.Dataset],
    sft_model: dsl.Input[dsl.Model],
    rl_model: dsl.Input[dsl.Model],
    sft_log: dsl.Input[dsl.Artifact],
    ppo_log: dsl.Input[dsl.Artifact],
    config: dict,  # type: ignore[type-arg]
    gateway_url: str,
    evaluation: dsl.Output[dsl.Artifact],
    predictions: dsl.Output[dsl.Dataset],
    blind_sample: dsl.Output[dsl.Dataset],
    blind_key: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    evaluation_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Compare no rewrite, history, teacher, SFT and RL on the same locked questions."""
    from pathlib import Path

    import orjson

    from components.evaluation.rewriter import stage
    from components.evaluation.rewriter.config import EvaluateConfig
    from components.evaluation.rewriter.folds import fold_inputs, fold_lineages, fold_papers, read_folds
    from components.evaluation.rewriter.report import to_markdown
    from components.step_figures import log_figures
    from components.step_summary import write_summary
    from qinglan.evaluation.gates.evaluation_file import Outputs
    from qinglan.lineage.steps.record import recorded
    from qinglan.lineage.steps.step_inputs import add_gateway_usage, add_prompts

    settings, folds = EvaluateConfig.parse(config, "evaluate"), read_folds()
    inputs = {
        "locked_test": locked_test,
        "augmented_chats": augmented_chats,
        "augmented_prompts": augmented_prompts,
        "sft_model": sft_model,
        "rl_model": rl_model,
        "sft_log": sft_log,
        "ppo_log": ppo_log,
        **fold_inputs(folds),
    }
    outputs = {
        "evaluation": evaluation,
        "predictions": predictions,
        "blind_sample": blind_sample,
        "blind_key": blind_key,
        "report": report,
    }
    taken = settings.model_dump(mode="json")
    with recorded("evaluate", inputs, outputs, taken, lineage, before, fold_lineages(folds)) as step:
        counts = stage.evaluate(
            Path(locked_test.path),
            {"sft": Path(sft_model.path), "rl": Path(rl_model.path)},
            {"sft": Path(augmented_chats.path), "ppo": Path(augmented_prompts.path)},
            {"sft": Path(sft_log.path), "ppo": Path(ppo_log.path)},
            Outputs.of_step(outputs),
            settings,
            gateway_url,
            folds,
        )
        step.papers.update(fold_papers(folds, Path(before.path)))
        step.facts.update(counts._asdict())
        add_gateway_usage(step, "evaluate", gateway_url)
        add_prompts(step, "judge", settings.judge_prompt)
    result = orjson.loads(Path(evaluation.path).read_bytes())
    write_summary(summary, to_markdown(result))
    log_figures(evaluation_metrics, {**counts._asdict(), **stage.headline_numbers(result)}, stage.FIGURES)


@step_component(CPU_IMAGE)
def gate(
    before: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    config: dict,  # type: ignore[type-arg]
    decision: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> str:
    """Answer `promote` or `hold`, on which the graph branches; the reasons are in the decision."""
    from components.gate_step import run_gate
    from qinglan.evaluation.gates.kinds import REWRITER

    return run_gate(REWRITER, evaluation, config, before, decision, lineage)
