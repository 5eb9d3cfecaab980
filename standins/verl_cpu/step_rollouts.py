"""Compute a step's rollouts as one batch, by an agent loop manager for verl's setting `agent_loop_manager_class`.

verl's own manager sends and stores every sample separately, with about ten messages between five processes. For a
tiny model, this takes much longer than the computation. Here the servers write all answers of a step, the reward
function gets all of them at once, and verl's queue gets them in one message, in the order of the rows. So the result
does not depend on which process is ready first, and the same seed gives the same training.

While the rewards are computed, verl already computes the reference's probabilities and the values. The two patched
functions in which verl waits are in rollout_patches.py.
"""

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import ray
import torch
import transfer_queue  # type: ignore[import-untyped]
from verl.utils.import_utils import load_extern_object
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from qinglan.rewriter.decoding import Continuation, Sampling
from qinglan.rewriter.model import load_tokenizer, render_prompt
from standins.verl_cpu.rollout import SERVER

NEEDED = ("uid", "raw_prompt", "data_source", "reward_model", "extra_info")
Figures = dict[str, float]


class Rollout(NamedTuple):
    """Rollout of one sample of one prompt."""

    row: dict[str, Any]
    prompt: list[int]
    sample: int
    seed: list[int]
    """Seed of the sample: run's seed, step, number of the row in the step, number of the sample."""

    @property
    def key(self) -> str:
        return f"{self.row['uid']}_{self.sample}_0"


class StepAnswers(NamedTuple):
    """Rollouts of a step with their answers, in the same order."""

    partition: str
    rollouts: list[Rollout]
    answers: list[Continuation]


class StepRollouts:
    """Agent loop manager that computes the rollouts of a training step or of a test on dev, called by verl."""

    current: "StepRollouts"
    figures: tuple[list[Figures], Figures]
    """Reward terms of the last training step, and the seconds for computing and for waiting for them."""

    def __init__(self, config: Any) -> None:
        self._rollout, model = config.actor_rollout_ref.rollout, Path(config.actor_rollout_ref.model.path)
        self._tokenizer = load_tokenizer(model)
        self._prompts: dict[str, list[int]] = {}
        devices = config.trainer.nnodes * config.trainer.n_gpus_per_node
        self._servers = [ray.get_actor(SERVER.format(rank)) for rank in range(devices)]
        function = config.reward.custom_reward_function
        self._scores = load_extern_object(function.path, "compute_scores")
        self._settings = function.reward_kwargs.settings
        self._thread = ThreadPoolExecutor(1)  # one task after the other, on one event loop that keeps its connections
        self._loop = asyncio.new_event_loop()
        self._written: Future[StepAnswers] = Future()
        self._scored: Future[tuple[list[Figures], float]] = Future()
        StepRollouts.current = self

    @classmethod
    def create(cls, config: Any, **_: Any) -> "StepRollouts":
        return cls(config)

    def generate_sequences(self, batch: Any) -> None:
        """Start the rollouts and return. verl waits for samples when it reads its queue, and later for rewards."""
        validate = bool(batch["validate"]) if "validate" in batch else False
        step = int(batch["global_steps"])
        rollouts = self._rollouts(batch, step, validate)
        self._written = self._thread.submit(self._run, self._write, rollouts, step, validate)
        self._scored = self._thread.submit(self._run, self._score, self._written)

    def wait_for_samples(self) -> None:
        """Wait until the samples are in verl's queue; in a test on dev, wait for their rewards too."""
        if self._written.result().partition == "val":
            self.wait_for_rewards()

    def wait_for_rewards(self) -> None:
        """Wait for the rewards of all samples, and put them into verl's queue. Raises the reward function's error."""
        began = time.perf_counter()
        written, (terms, seconds) = self._written.result(), self._scored.result()
        if written.partition == "train":
            spent = {"seconds_mean": seconds, "seconds_unhidden": time.perf_counter() - began}
            self.figures = terms, spent
        pairs = zip(terms, written.answers, strict=True)
        fields: list[dict[str, Any]] = [{"rm_scores": _at_the_end(term["score"], answer)} for term, answer in pairs]
        if written.partition == "val":  # for a training step they are in `figures`
            fields = [
                {**scores, "extra_fields": {"reward_extra_info": term}}
                for scores, term in zip(fields, terms, strict=True)
            ]
        keys = [rollout.key for rollout in written.rollouts]
        transfer_queue.kv_batch_put(
            keys=keys, fields=list_of_dict_to_tensordict(fields), partition_id=written.partition
        )

    def _run(self, work: Any, *args: Any) -> Any:
        return self._loop.run_until_complete(work(*args))

    def _rollouts(self, batch: Any, step: int, validate: bool) -> list[Rollout]:
        columns = {name: batch[name] for name in NEEDED}  # each access makes a list of all its cells
        rows = [{name: _plain(column[at]) for name, column in columns.items()} for at in range(len(batch))]
        samples = self._rollout.val_kwargs.n if validate else self._rollout.n
        return [
            Rollout(row, self._prompt(row), sample, [self._rollout.seed, step, number, sample])
            for number, row in enumerate(rows)
            for sample in range(samples)
        ]

    def _prompt(self, row: dict[str, Any]) -> list[int]:
        text = render_prompt(self._tokenizer, list(row["raw_prompt"]))
        if text not in self._prompts:
            self._prompts[text] = self._tokenizer(text, add_special_tokens=False).input_ids
        return self._prompts[text]

    async def _write(self, rollouts: list[Rollout], step: int, validate: bool) -> StepAnswers:
        """Let each server write its share of the answers, in order, and put all samples into verl's queue."""
        settings = self._rollout.val_kwargs if validate else self._rollout
        sampling = Sampling(settings.temperature, settings.top_p, max(0, settings.top_k))
        share = -(-len(rollouts) // len(self._servers))
        parts = [rollouts[start : start + share] for start in range(0, len(rollouts), share)]
        parts_written = await asyncio.gather(  # noqa: TID251 - work of other processes
            *(
                server.write.remote(
                    [rollout.prompt for rollout in part], sampling, [rollout.seed for rollout in part]
                )
                for server, part in zip(self._servers, parts, strict=False)
            )
        )
        answers = [answer for part, _ in parts_written for answer in part]
        written = StepAnswers("val" if validate else "train", rollouts, answers)
        _store(written, step, weights_step=parts_written[0][1])
        return written

    async def _score(self, written: "Future[StepAnswers]") -> tuple[list[Figures], float]:
        started = time.perf_counter()
        _, rollouts, answers = written.result()
        samples = [self._sample(rollout.row, answer) for rollout, answer in zip(rollouts, answers, strict=True)]
        terms: list[Figures] = await self._scores(samples, settings=self._settings)
        return terms, time.perf_counter() - started

    def _sample(self, row: dict[str, Any], answer: Continuation) -> dict[str, Any]:
        """Build a sample in the format in which verl passes it to a reward function."""
        return {
            "data_source": row["data_source"],
            "solution_str": self._tokenizer.decode(answer.ids, skip_special_tokens=True),
            "ground_truth": row["reward_model"]["ground_truth"],
            "extra_info": row["extra_info"],
        }


def _store(written: StepAnswers, step: int, weights_step: int) -> None:
    """Put the samples into verl's queue with the fields that its trainer reads, and mark each prompt as finished."""
    rollouts = written.rollouts
    pairs = list(zip(rollouts, written.answers, strict=True))
    transfer_queue.kv_batch_put(
        keys=[rollout.key for rollout in rollouts],
        fields=list_of_dict_to_tensordict([_fields(*pair, written.partition) for pair in pairs]),
        tags=[_tags(*pair, step, weights_step) for pair in pairs],
        partition_id=written.partition,
    )
    uids = list(dict.fromkeys(str(rollout.row["uid"]) for rollout in rollouts))
    finished = [{"status": "finished"}] * len(uids)
    transfer_queue.kv_batch_put(keys=uids, tags=finished, partition_id=written.partition)


def _fields(rollout: Rollout, answer: Continuation, partition: str) -> dict[str, Any]:
    """Return the fields of a sample that verl's trainer and workers read. Other columns would be sent needlessly."""
    prompt, response = torch.tensor(rollout.prompt), torch.tensor(answer.ids)
    mask = torch.ones_like(response)
    columns = ("data_source", "reward_model") if partition == "val" else ()
    return {
        **{name: rollout.row[name] for name in columns},
        "uid": rollout.row["uid"],
        "prompts": prompt,
        "responses": response,
        "input_ids": torch.cat([prompt, response]),
        "position_ids": torch.arange(len(prompt) + len(response)),
        "response_mask": mask,
        "loss_mask": mask,
        "rollout_log_probs": torch.tensor(answer.log_probs),
        "num_turns": torch.tensor(2),
    }


def _tags(rollout: Rollout, answer: Continuation, step: int, weights_step: int) -> dict[str, Any]:
    prompt, response = len(rollout.prompt), len(answer.ids)
    return {
        "status": "success", "prompt_len": prompt, "response_len": response, "seq_len": prompt + response,
        "global_steps": step, "min_global_steps": weights_step, "max_global_steps": weights_step,
    }  # fmt: skip


def _at_the_end(score: float, answer: Continuation) -> torch.Tensor:
    scores = torch.zeros(len(answer.ids))
    scores[-1] = score
    return scores


def _plain(value: Any) -> Any:
    return getattr(value, "data", value)
