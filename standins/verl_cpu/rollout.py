"""Rollout for verl with transformers: a server in a Ray actor writes a step's answers and loads new weights."""

import os
from collections.abc import Sequence
from typing import Any

from qinglan.rewriter.decoding import Continuation, Sampling, decode

SERVER = "hf_generate_{}"


class GenerateServer:
    """Server that writes answers with the actor's weights. verl calls the methods below `write`."""

    def __init__(self, path: str, response_length: int, batch: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        self._tokenizer = AutoTokenizer.from_pretrained(path)
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self._response_length, self._batch = response_length, batch
        self._step = 0

    def ready(self) -> bool:
        return True

    async def write(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[Sequence[int]]
    ) -> tuple[list[Continuation], int]:
        """Write an answer to each prompt. Returns the answers, and the step of the weights that wrote them.

        Each answer is sampled with a separate random generator.
        """
        answers: list[Continuation] = []
        for start in range(0, len(prompts), self._batch):
            part = slice(start, start + self._batch)
            answers += decode(
                self._model, prompts[part], self._response_length, self._tokenizer.eos_token_id,
                self._tokenizer.pad_token_id, sampling, uniform_samples(seeds[part], self._response_length),
            )  # fmt: skip
        return answers, self._step

    async def load_weights(self, weights: dict[str, Any], step: int | None) -> None:
        """Load every weight by its name. A missing or unknown name means another model, and is a ValueError."""
        missing, unknown = self._model.load_state_dict(weights, strict=False)
        tied = {"lm_head.weight"} if self._model.config.tie_word_embeddings else set()
        if unknown or set(missing) - tied:
            raise ValueError(f"rollout weights: missing {sorted(missing)[:3]}, unknown {sorted(unknown)[:3]}")
        self._step = self._step if step is None else step

    async def _nothing(self, *args: Any, **named: Any) -> None:
        return None

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = _nothing


def uniform_samples(seeds: Sequence[Sequence[int]], most: int) -> Any:
    """Draw `most` random numbers in [0, 1) for each seed, independent of the other seeds in the batch."""
    import numpy as np

    return np.stack([np.random.default_rng(seed).random(most) for seed in seeds])
