"""python -m benchmarks.ppo.rloo JOB: TRL's RLOO on verl's own prompts, model and reward, in a process of its own."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.faulty_reward.handling import HANDLINGS

GENERATIONS = 4
"""Rewrites a prompt, each the others' baseline."""


class Job(NamedTuple):
    """Paths, and the numbers that both sides share."""

    model: str
    prompts: str
    reward: str
    """The reward's settings, as verl's workers get them."""

    out: str
    steps: int
    collection: int
    batch: int
    learning_rate: float
    kl: float
    max_new_tokens: int
    seed: int
    handling: str = "ours"
    """The rewards' way when a call fails, of HANDLINGS."""

    checkpoint_steps: int = 0
    """Rollout steps between checkpoints; 0 for none. A job that finds checkpoints goes on from the last."""


def main(job: Job) -> None:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from transformers.trainer_utils import get_last_checkpoint
    from trl import RLOOConfig, RLOOTrainer

    from qinglan.rewriter.model import load_tokenizer

    tokenizer = load_tokenizer(Path(job.model))
    score, out = HANDLINGS[job.handling], Path(job.out)
    out.mkdir(parents=True, exist_ok=True)

    async def reward(
        completions: list[Any], completion_ids: list[list[int]], row: list[str], trainer_state: Any, **_: Any
    ) -> list[float]:
        samples = [
            {**orjson.loads(entry), "text": completion[0]["content"], "ids": ids}
            for entry, completion, ids in zip(row, completions, completion_ids, strict=True)
        ]
        rewards = await score(samples, job.reward, tokenizer)
        rollouts = [[sample["extra_info"]["id"], sample["text"]] for sample in samples]
        line = {"step": trainer_state.global_step, "rollouts": rollouts, "rewards": rewards}
        with (out / "rewards.jsonl").open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")
        return rewards

    updates = job.collection // job.batch
    settings = RLOOConfig(
        output_dir=job.out, max_steps=job.steps * updates, per_device_train_batch_size=job.batch,
        generation_batch_size=job.collection, num_generations=GENERATIONS, learning_rate=job.learning_rate,
        lr_scheduler_type="constant", beta=job.kl, max_completion_length=job.max_new_tokens, temperature=1.0,
        seed=job.seed, use_cpu=True, bf16=False, report_to=[], logging_steps=10,
        save_strategy="steps" if job.checkpoint_steps else "no", save_steps=max(job.checkpoint_steps, 1) * updates,
        gradient_checkpointing=False, max_grad_norm=1.0,
    )  # fmt: skip
    trainer = RLOOTrainer(
        model=AutoModelForCausalLM.from_pretrained(job.model, dtype="float32"),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_list(_rows(job.prompts)),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(job.out))
    trainer.save_model(job.out)


def _rows(prompts: str) -> list[dict[str, Any]]:
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(prompts).to_pylist()
    return [{"prompt": row["prompt"], "row": orjson.dumps(row).decode()} for row in rows]


if __name__ == "__main__":
    main(Job(**orjson.loads(Path(sys.argv[1]).read_bytes())))
