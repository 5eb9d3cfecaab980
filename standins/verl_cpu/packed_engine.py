"""FSDP engines of verl without padding or repeated tokens, registered for the device "cpu".

verl pads a batch to a rectangle and computes logits, log-probabilities and entropy of every token, but uses only the
answers' figures. Here a batch is one line of tokens without padding. A prompt occurs once for all its
samples, and the system prompt once for all prompts. Only attention works by rows, and logits are computed only for
answers.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from verl.utils import tensordict_utils
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from standins.verl_cpu.packing import AnswerTokens, pack_batch, packed_attention
from standins.verl_cpu.settings import PACKED_ATTENTION

DEVICE = "cpu"

# https://huggingface.co/docs/transformers/en/attention_interface
AttentionInterface.register(PACKED_ATTENTION, packed_attention)
AttentionMaskInterface.register(PACKED_ATTENTION, lambda *args, **named: None)


def _inputs(micro_batch: Any) -> tuple[dict[str, Any], AnswerTokens]:
    lengths = (micro_batch[name].offsets().diff() for name in ("prompts", "responses"))
    line, answers = pack_batch(micro_batch["input_ids"], *lengths)
    inputs = {"input_ids": line.tokens.unsqueeze(0), "position_ids": line.positions.unsqueeze(0), "line": line}
    return {**inputs, "attention_mask": None}, answers


def _nested(figures: Any, answers: AnswerTokens, micro_batch: Any) -> Any:
    """Convert the answers' figures to verl's format: a figure for each token of the batch, 0 for prompts."""
    ids = micro_batch["input_ids"]
    whole = figures.new_zeros(len(ids.values())).index_put((answers.positions,), figures)
    return torch.nested.nested_tensor_from_jagged(whole, ids.offsets())


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device=DEVICE)
class PackedEngine(FSDPEngineWithLMHead):  # type: ignore[misc]
    """Engine of the actor and of the reference."""

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], AnswerTokens]:
        inputs, answers = _inputs(micro_batch)
        return {**inputs, "logits_to_keep": answers.before}, answers

    def prepare_model_outputs(
        self, output: Any, output_args: AnswerTokens, micro_batch: Any, logits_processor_func: Any
    ) -> dict[str, Any]:
        likely = (output.logits[0] / micro_batch["temperature"]).log_softmax(-1)
        of_tokens = likely.gather(-1, output_args.tokens.unsqueeze(-1)).squeeze(-1)
        out = {"log_probs": _nested(of_tokens, output_args, micro_batch)}
        if tensordict_utils.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False):
            out["entropy"] = _nested(-(likely.exp() * likely).sum(-1), output_args, micro_batch)
        return out


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device=DEVICE)
class PackedValueEngine(FSDPEngineWithValueHead):  # type: ignore[misc]
    """Engine of the critic."""

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], AnswerTokens]:
        return _inputs(micro_batch)

    def prepare_model_outputs(
        self, output: Any, output_args: AnswerTokens, micro_batch: Any, logits_processor_func: Any
    ) -> dict[str, Any]:
        values = output.logits[0, output_args.before, 0]
        return {"values": _nested(values, output_args, micro_batch)}
