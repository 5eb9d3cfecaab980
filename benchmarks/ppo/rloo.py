"""python -m benchmarks.ppo.rloo JOB: TRL's RLOO on verl's own prompts, model and reward, in a process of its own."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.reward.reward_function import compute_scores

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


def main(job: Job) -> None:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import RLOOConfig, RLOOTrainer

    from qinglan.rewriter.model import load_tokenizer

    async def reward(completions: list[Any], row: list[str], **_: Any) -> list[float]:
        rows = [orjson.loads(entry) for entry in row]
        samples = [
            {
                "data_source": entry["data_source"], "solution_str": completion[0]["content"],
                "ground_truth": entry["reward_model"]["ground_truth"], "extra_info": entry["extra_info"],
            }
            for entry, completion in zip(rows, completions, strict=True)
        ]  # fmt: skip
        terms = await compute_scores(samples, job.reward)
        return [entry["score"] for entry in terms]

    settings = RLOOConfig(
        output_dir=job.out, max_steps=job.steps * job.collection // job.batch, per_device_train_batch_size=job.batch,
        generation_batch_size=job.collection, num_generations=GENERATIONS, learning_rate=job.learning_rate,
        lr_scheduler_type="constant", beta=job.kl, max_completion_length=job.max_new_tokens, temperature=1.0,
        seed=job.seed, use_cpu=True, bf16=False, report_to=[], save_strategy="no", logging_steps=10,
        gradient_checkpointing=False, max_grad_norm=1.0,
    )  # fmt: skip
    trainer = RLOOTrainer(
        model=AutoModelForCausalLM.from_pretrained(job.model, dtype="float32"),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_list(_rows(job.prompts)),
        processing_class=load_tokenizer(Path(job.model)),
    )
    trainer.train()
    trainer.save_model(job.out)


def _rows(prompts: str) -> list[dict[str, Any]]:
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(prompts).to_pylist()
    return [{"prompt": row["prompt"], "row": orjson.dumps(row).decode()} for row in rows]


if __name__ == "__main__":
    main(Job(**orjson.loads(Path(sys.argv[1]).read_bytes())))
