"""A base with random weights, an adapter that learned answers by heart, and both merged: what `engine same` compares.

    $(python -m pipelines.execute.environments ppo) -m tests.gpu.adapter OUT [--shape Qwen/Qwen3-0.6B]

OUT/base, OUT/adapter and OUT/merged; the adapter is written, and merged, by the functions that export PPO's.
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.training.ppo.adapters import concatenate_adapters, merge_adapter, write_adapter
from qinglan.files.digests import digest
from qinglan.terminal import say_json
from tests.gpu.checks import with_adapter
from tests.gpu.engine import learned_answers
from tests.gpu.training_files import new_folder_on_a_gpu
from tests.gpu.wide_models import write_folder

RANK, STEPS, RATE = 16, 120, 1e-3
IGNORED = -100


def write(out: Path, base: Path, device: str, steps: int = STEPS, rate: float = RATE) -> float:
    """Write the adapter and the merged weights beside `base`; returns the loss of the last step."""
    import torch
    from peft import get_peft_model_state_dict
    from transformers import AutoModelForCausalLM, AutoTokenizer

    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).to(device)
    adapted = with_adapter(plain, RANK, learned=False)
    ids, labels = batch(AutoTokenizer.from_pretrained(base), learned_answers(), device)
    optimizer = torch.optim.AdamW([tensor for tensor in adapted.parameters() if tensor.requires_grad], lr=rate)
    for _ in range(steps):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = adapted(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapted.parameters(), 1.0)
        optimizer.step()
    scale = 2.0  # with_adapter's lora_alpha is twice its rank
    state = get_peft_model_state_dict(adapted)
    adapter = {name: tensor.detach().cpu() for name, tensor in state.items()}
    write_adapter(out / "adapter", concatenate_adapters(({}, 1.0), (adapter, scale)), digest(base))
    merge(base, adapter, scale, out / "merged")
    return float(loss.detach())


def batch(tokenizer: Any, pairs: Sequence[tuple[str, str]], device: str) -> tuple[Any, Any]:
    """Prompts and answers as one batch; a padded row goes on after its end, where nothing is learned."""
    import torch

    rows = []
    for prompt, answer in pairs:
        begin = tokenizer(prompt, add_special_tokens=False).input_ids
        rows.append((len(begin), [*begin, *tokenizer(answer + "<|im_end|>", add_special_tokens=False).input_ids]))
    longest = max(len(ids) for _, ids in rows)
    ids = torch.tensor([[*ids, *[0] * (longest - len(ids))] for _, ids in rows])
    labels = ids.clone()
    for row, (begins, tokens) in enumerate(rows):
        labels[row, :begins], labels[row, len(tokens) :] = IGNORED, IGNORED
    return ids.to(device), labels.to(device)


def merge(base: Path, adapter: dict[str, Any], scale: float, merged: Path) -> None:
    from transformers import AutoModelForCausalLM

    shutil.copytree(base, merged, ignore=shutil.ignore_patterns("*.safetensors"))
    model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    model.load_state_dict(merge_adapter(model.state_dict(), adapter, scale))
    model.save_pretrained(merged)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.adapter", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", default="Qwen/Qwen3-0.6B", help="of qinglan/sizing/shapes.yaml")
    options = parser.parse_args()
    new_folder_on_a_gpu(options.out)
    out = options.out.resolve()
    say_json({"loss": write(out, write_folder(out / "base", options.shape), "cuda")})


if __name__ == "__main__":
    main()
