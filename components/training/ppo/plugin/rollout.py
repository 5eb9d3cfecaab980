"""Hugging Face's generate as a rollout of verl's: a server in a Ray actor, and the way its weights come in."""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from components.training.ppo.overrides import CPU_ROLLOUT
from components.training.ppo.plugin.importing import when_imported

HERE = "components.training.ppo.plugin.rollout"
SERVER = "hf_generate_{}"
WINDOW_SECONDS = 0.03
"""Asks that come within this of each other are answered together."""


class Sampling(NamedTuple):
    """How to choose the next token; asks that share it may share a batch."""

    temperature: float
    top_p: float
    top_k: int


class Ask(NamedTuple):
    prompt: list[int]
    sampling: Sampling
    answer: "asyncio.Future[Any]"


class GenerateServer:
    """Answers verl's asks in batches; verl names the methods."""

    def __init__(self, path: str, response_length: int, batch: int, seed: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        torch.manual_seed(seed)
        self._tokenizer = AutoTokenizer.from_pretrained(path)
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self._response_length, self._batch = response_length, batch
        self._waiting: list[Ask] = []
        self._step = 0
        self._working: asyncio.Task[None] | None = None

    def ready(self) -> bool:
        return True

    async def generate(self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: Any, **_: Any) -> Any:
        asked = Sampling(**{name: sampling_params[name] for name in Sampling._fields})
        ask = Ask(list(prompt_ids), asked, asyncio.get_running_loop().create_future())
        self._waiting.append(ask)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await ask.answer

    async def _work(self) -> None:
        while self._waiting:
            await asyncio.sleep(WINDOW_SECONDS)
            asks = together(self._waiting, self._batch)
            self._waiting = [ask for ask in self._waiting if ask not in asks]
            try:
                answers = await asyncio.to_thread(self._generate, [ask.prompt for ask in asks], asks[0].sampling)
            except Exception as error:
                for ask in asks:
                    ask.answer.set_exception(error)
            else:
                for ask, answer in zip(asks, answers, strict=True):
                    with contextlib.suppress(asyncio.InvalidStateError):
                        ask.answer.set_result(answer)

    def _generate(self, prompts: list[list[int]], sampling: Sampling) -> list[Any]:
        import torch
        from verl.workers.rollout.replica import TokenOutput

        pad, end = self._tokenizer.pad_token_id, self._tokenizer.eos_token_id
        longest = max(map(len, prompts))
        padded = [[pad] * (longest - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        with torch.inference_mode():
            made = self._model.generate(
                input_ids=torch.tensor(padded), attention_mask=torch.tensor(mask),
                max_new_tokens=self._response_length, eos_token_id=end, pad_token_id=pad,
                return_dict_in_generate=True, output_logits=True, **choosing(sampling),
            )  # fmt: skip
        tokens = made.sequences[:, longest:]
        logits = torch.stack(made.logits, 1) / (sampling.temperature or 1.0)
        chosen = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        out = []
        for ids, likely in zip(tokens.tolist(), chosen.tolist(), strict=True):
            length = ids.index(end) + 1 if end in ids else len(ids)
            out.append(
                TokenOutput(
                    token_ids=ids[:length], log_probs=likely[:length], stop_reason="completed",
                    extra_fields={"global_steps": self._step},
                )
            )  # fmt: skip
        return out

    async def load_weights(self, weights: dict[str, Any], step: int | None) -> None:
        """Every weight by its name; one that is missing or unknown would be a rollout of another model."""
        missing, unknown = self._model.load_state_dict(weights, strict=False)
        tied = {"lm_head.weight"} if self._model.config.tie_word_embeddings else set()
        if unknown or set(missing) - tied:
            raise ValueError(f"rollout weights: missing {sorted(missing)[:3]}, unknown {sorted(unknown)[:3]}")
        self._step = self._step if step is None else step

    async def _nothing(self, *args: Any, **named: Any) -> None:
        return None

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = _nothing


def together(waiting: Sequence[Ask], most: int) -> list[Ask]:
    """The asks that the next batch answers: those that sample as the first does, in their order."""
    return [ask for ask in waiting if ask.sampling == waiting[0].sampling][:most]


def choosing(sampling: Sampling) -> dict[str, Any]:
    """generate()'s arguments; a temperature of 0 is greedy."""
    if not sampling.temperature:
        return {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    return {"do_sample": True, **sampling._asdict(), "top_k": max(0, sampling.top_k)}


@when_imported("verl.workers.rollout.base")
def _register_adapter(module: Any) -> None:
    module._ROLLOUT_REGISTRY[(CPU_ROLLOUT, "async")] = f"{HERE}_adapter.GenerateAdapter"


@when_imported("verl.workers.rollout.replica")
def _register_replica(module: Any) -> None:
    def load() -> Any:
        from components.training.ppo.plugin.rollout_adapter import GenerateReplica

        return GenerateReplica

    module.RolloutReplicaRegistry.register(CPU_ROLLOUT, load)
