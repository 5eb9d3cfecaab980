"""Two ways to reward rollouts whose judge may fail: our reward function, and verl's manager around a plain one."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from qinglan.reward.reward_function import compute_scores, read_prompt, read_settings
from qinglan.reward.scorer import Scorer

AT_ONCE = 64
"""Reward calls of verl's manager under way at once."""

Sample = Mapping[str, Any]


class JudgeFailedError(Exception):
    """The judge gave nothing usable."""


async def scores_by_ours(samples: Sequence[Sample], settings: str, tokenizer: Any) -> list[float]:
    """Rewards by the function that verl calls in our training."""
    return [terms["score"] for terms in await compute_scores([_arguments(sample) for sample in samples], settings)]


_managers: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()


async def scores_by_verl(samples: Sequence[Sample], settings: str, tokenizer: Any) -> list[float]:
    """Rewards by verl's RateLimitedRewardManager, which logs an exception of the reward function and gives 0."""
    loop = asyncio.get_running_loop()
    if loop not in _managers:
        _managers[loop] = verl_manager(plain_reward_function(settings), tokenizer)
    return list(await asyncio.gather(*(run_single(_managers[loop], sample) for sample in samples)))


def verl_manager(compute_score: Any, tokenizer: Any) -> Any:
    """verl's manager as its configuration `reward_manager: rate_limited` makes it."""
    from omegaconf import DictConfig
    from verl.experimental.reward_loop.reward_manager.limited import RateLimitedRewardManager

    RateLimitedRewardManager._class_initialized = False  # its semaphore is the class's, and of one event loop
    return RateLimitedRewardManager(DictConfig({"reward": {"max_concurrent": AT_ONCE}}), tokenizer, compute_score)


async def run_single(manager: Any, sample: Sample) -> float:
    """One rollout through a manager of verl, as its reward worker passes it."""
    import numpy as np
    import torch
    from verl import DataProto

    ids = torch.tensor([sample["ids"]])
    fields = ("data_source", "reward_model", "extra_info")
    data = DataProto.from_dict(
        tensors={"responses": ids, "attention_mask": torch.ones_like(ids)},
        non_tensors={
            name: np.array([dict(value) if isinstance(value := sample[name], dict) else value], dtype=object)
            for name in fields
        },
    )
    return float((await manager.run_single(data))["reward_score"])


def plain_reward_function(settings: str) -> Any:
    """A reward function as in verl's examples: it calls the judge, computes, and raises every error."""
    read = read_settings(settings)
    scorer = Scorer(read.gateway_url, read.config)

    async def compute_score(
        data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], **_: Any
    ) -> dict[str, float]:
        terms = await scorer.score(read_prompt(extra_info, ground_truth, data_source), solution_str)
        if terms["judge_failed"]:
            raise JudgeFailedError("The judge gave nothing usable.")
        return terms

    return compute_score


def _arguments(sample: Sample) -> dict[str, Any]:
    return {
        "data_source": sample["data_source"], "solution_str": sample["text"],
        "ground_truth": sample["reward_model"]["ground_truth"], "extra_info": sample["extra_info"],
    }  # fmt: skip


HANDLINGS = {"ours": scores_by_ours, "verl": scores_by_verl}
