"""The served model is the trained one: merged, or as one adapter, the weights answer as both adapters in a row."""

from pathlib import Path
from typing import Any

import pytest

from components.training.ppo.adapters import (
    concatenate_adapters,
    lora_pairs,
    merge_adapter,
    read_adapter,
    write_adapter,
)
from components.training.ppo.finish import finish
from qinglan.files.files import sha256_file
from qinglan.rewriter.card import RewriterCard, read_card
from tests.models.tiny_rewriter import SYSTEM, taught_model, tiny_model

pytestmark = pytest.mark.slow
TOLERANCE = 1e-4


def load(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(model: Any) -> Any:
    import torch

    with torch.inference_mode():
        return model(input_ids=torch.arange(3, 40).unsqueeze(0)).logits


def make_adapter(model: Any, rank: int, alpha: int, seed: int, folder: Path, modules: list[str]) -> None:
    """A trained adapter, as PEFT leaves it: neither side is zero."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    tuned = get_peft_model(model, LoraConfig(r=rank, lora_alpha=alpha, target_modules=modules, task_type="CAUSAL_LM"))
    for name, parameter in tuned.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    tuned.save_pretrained(folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base/, first/ trained on it, merged/ of both, second/ trained on that."""
    root = tmp_path_factory.mktemp("adapters")
    tiny_model(root / "base")
    make_adapter(load(root / "base"), 4, 8, 1, root / "first", ["q_proj", "v_proj", "down_proj"])
    model = load(root / "base")
    model.load_state_dict(merge_adapter(model.state_dict(), *read_adapter(root / "first")))
    model.save_pretrained(root / "merged")
    make_adapter(load(root / "merged"), 2, 8, 2, root / "second", ["q_proj", "up_proj"])
    return root


def with_adapter(base: Path, adapter: Path) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(load(base), adapter).eval()


def test_merged_weights_answer_as_the_adapter_does(trained: Path) -> None:
    difference = (logits(load(trained / "merged")) - logits(with_adapter(trained / "base", trained / "first"))).abs()

    assert difference.max() < TOLERANCE


def test_a_concatenated_adapter_computes_what_both_adapters_compute(trained: Path, tmp_path: Path) -> None:
    both = concatenate_adapters(read_adapter(trained / "first"), read_adapter(trained / "second"))
    write_adapter(tmp_path / "both", both, "d1")

    served = logits(with_adapter(trained / "base", tmp_path / "both"))

    in_a_row = logits(with_adapter(trained / "merged", trained / "second"))
    assert (served - in_a_row).abs().max() < TOLERANCE


def test_an_adapter_names_the_digest_of_its_base(trained: Path, tmp_path: Path) -> None:
    write_adapter(tmp_path, concatenate_adapters(read_adapter(trained / "first"), ({}, 1.0)), "abc")

    assert '"sha256:abc"' in (tmp_path / "adapter_config.json").read_text()
    assert lora_pairs(read_adapter(tmp_path)[0]).keys() == lora_pairs(read_adapter(trained / "first")[0]).keys()


def test_where_training_made_nothing_better_the_sft_model_is_handed_on(tmp_path: Path) -> None:
    import pandas

    sft_model, work = taught_model(tmp_path / "sft"), tmp_path / "work"
    work.mkdir()
    prompt = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "一天吃几次"}]
    pandas.DataFrame({"prompt": [prompt]}).to_parquet(work / "dev.parquet")
    card = RewriterCard(stage="ppo", system_prompts={"fivedoctors": SYSTEM}, max_new_tokens=8)

    finish({"sft_model": str(sft_model), "work": str(work), "card": card.model_dump(mode="json"), "trained": False})

    weights = "model.safetensors"
    assert sha256_file(work / "model" / weights) == sha256_file(sft_model / weights)
    assert read_card(work / "model").stage == "ppo"
