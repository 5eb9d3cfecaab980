"""TRL's GRPO on the responder, with a look at held-out answers after each checkpoint."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from examples.style_policy.config import StylePolicyConfig
from examples.style_policy.responder import Responder
from examples.style_policy.reward import Score, trl_reward
from examples.style_policy.rows import Example
from qinglan.errors import TrainingError
from qinglan.files.scratch import last_checkpoint
from qinglan.terminal.progress import step_progress

WARM_UP = 5
"""Steps in which GRPO's learning rate rises."""

Metrics = dict[str, float]
AtStep = Callable[[int, list[Metrics]], bool]
"""Called with the step and the log so far after each checkpoint, and before the first; True ends the training."""

NAMES = {
    "reward": "train_reward", "reward_std": "train_reward_std", "frac_reward_zero_std": "same_rewards",
    "kl": "train_kl", "loss": "loss", "grad_norm": "gradient_norm", "entropy": "entropy",
    "completions/mean_length": "train_tokens",
}  # fmt: skip
"""TRL's names, and ours."""


def learn_to_answer(base: Path, out: Path, examples: Sequence[Example], config: StylePolicyConfig) -> None:
    """SFT on all manners alike: out becomes a folder with weights and tokenizer."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from examples.style_policy.responder import open_responder

    responder = open_responder(base, "cpu", config.temperature, config.max_new_tokens)
    start = config.start
    settings = SFTConfig(
        output_dir=str(out), num_train_epochs=start.epochs, per_device_train_batch_size=start.batch,
        learning_rate=start.learning_rate, lr_scheduler_type="linear", warmup_steps=WARM_UP, save_strategy="no",
        max_length=None, seed=config.seed, disable_tqdm=True, logging_steps=10, report_to=[], **_machine(config),
    )  # fmt: skip
    trainer = SFTTrainer(
        model=responder.model, args=settings, processing_class=responder.tokenizer,
        train_dataset=Dataset.from_list([{"prompt": row.prompt, "completion": row.answer} for row in examples]),
    )  # fmt: skip
    with step_progress("style_policy start") as show:
        _follow(trainer, show)
        trainer.train()
    save(responder, out)


def reinforce(
    responder: Responder,
    score: Score,
    prompts: Sequence[str],
    checkpoints: Path,
    config: StylePolicyConfig,
    at: AtStep,
) -> list[Metrics]:
    """GRPO from the last whole checkpoint, if there is one; the log by step comes back."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        output_dir=str(checkpoints), max_steps=config.steps,
        per_device_train_batch_size=config.batch // config.accumulation,
        gradient_accumulation_steps=config.accumulation,
        num_generations=config.num_generations, learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup", warmup_steps=WARM_UP, beta=config.beta,
        temperature=config.temperature, top_k=0, max_completion_length=config.max_new_tokens, max_grad_norm=1.0,
        save_strategy="steps", save_steps=config.watch_every, save_total_limit=1, logging_steps=1, seed=config.seed,
        disable_tqdm=True, report_to=[], **_machine(config),
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=responder.model, reward_funcs=trl_reward(score), args=settings, processing_class=responder.tokenizer,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
    )  # fmt: skip
    with step_progress("style_policy") as show:
        _follow(trainer, show)
        trainer.add_callback(_step_callback(at))
        last = last_checkpoint(checkpoints)
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    return log_of(trainer.state.log_history)


def save(responder: Responder, folder: Path) -> None:
    responder.model.save_pretrained(folder, safe_serialization=True)
    responder.tokenizer.save_pretrained(folder)


def log_of(history: Sequence[dict[str, Any]]) -> list[Metrics]:
    """TRL's log by our names."""
    return [
        {"step": int(row["step"]), **{figure: float(row[name]) for name, figure in NAMES.items() if name in row}}
        for row in history
        if "reward" in row
    ]


def _machine(config: StylePolicyConfig) -> dict[str, Any]:
    """bfloat16 and checkpointed gradients where there is a GPU."""
    cpu = config.device == "cpu"
    return {"use_cpu": cpu, "bf16": not cpu, "gradient_checkpointing": not cpu}


def _follow(trainer: Any, show: Callable[..., None]) -> None:
    """Progress in our words instead of theirs, and an end to what is no number any more."""
    from transformers import PrinterCallback, TrainerCallback

    class Following(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
            for name in ("loss", "grad_norm", "reward"):
                if name in logs and not math.isfinite(float(logs[name])):
                    raise TrainingError(
                        f"{name} is {logs[name]} at step {state.global_step}: the update has diverged. "
                        "Lower style_policy.learning_rate, or start.learning_rate if that is where it was."
                    )
            figures = [f"{name} {float(logs[name]):.3f}" for name in ("loss", "reward") if name in logs]
            show(state.global_step, state.max_steps, ", ".join(figures))

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Following())


def _step_callback(at: AtStep) -> Any:
    from transformers import TrainerCallback

    class StepCallback(TrainerCallback):  # type: ignore[misc]
        """A look follows a whole checkpoint, so a training that was killed has each look's weights or none."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = at(state.global_step, log_of(state.log_history))

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if at(state.global_step, log_of(state.log_history)):
                control.should_training_stop = True

    return StepCallback()
