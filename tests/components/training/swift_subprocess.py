"""Questions to ms-swift itself, each answered in a process of its own.

ms-swift replaces parts of transformers' Trainer as it is imported, and any other training in that process would fail.
"""

from typing import Any

from qinglan.errors import TrainingError

Row = dict[str, Any]


def argument_names() -> set[str]:
    """The options that `swift sft` takes."""
    from swift.arguments import SftArguments

    return set(SftArguments.__dataclass_fields__)


def encoded(base: str, template: str, *rows: Row) -> list[list[int]]:
    """The token ids that each chat is trained on."""
    from swift.model import get_processor
    from swift.template import get_template

    chosen = get_template(get_processor(base, model_type="qwen3"), template_type=template, enable_thinking=False)
    chosen.set_mode("train")
    return [chosen.encode(row)["input_ids"] for row in rows]


def read_command(words: list[str], row: Row) -> dict[str, Any]:
    """The attention, weights and ZeRO stage of a command, and the ids and labels of the row."""
    import torch
    from swift.arguments import SftArguments
    from swift.pipelines.train.sft import SwiftSft
    from swift.utils import parse_args
    from transformers.integrations.deepspeed import deepspeed_config, unset_hf_deepspeed_config

    args, rest = parse_args(SftArguments, words)
    assert not rest, rest
    deepspeed = deepspeed_config()
    unset_hf_deepspeed_config()  # else the shapes below would be sharded
    with torch.device("meta"):  # shapes without memory
        model, processor = args.get_model_processor(return_dummy_model=True)
    template = args.get_template(processor)
    template.set_mode("train")
    example = template.encode(row)
    parameters = sum(weight.numel() for weight in model.parameters())
    trained = SwiftSft.prepare_model(args, model, template=template)
    return {
        "attention": model.config._attn_implementation,
        "parameters": parameters,
        "trained": sum(weight.numel() for weight in trained.parameters() if weight.requires_grad),
        "zero_stage": deepspeed["zero_optimization"]["stage"] if deepspeed else None,
        "packing": args.packing or args.padding_free,
        "ids": example["input_ids"],
        "labels": example["labels"],
    }


def refusals(cases: list[tuple[int, int, int]]) -> list[str]:
    """Refusals of our plug-in, given the processes asked for, those torch knows of, and those the trainer knows of.

    Empty where they train together.
    """
    from components.training.sft.plugin.together import check_process_count

    messages = []
    for requested, torch_knows, trainer_knows in cases:
        try:
            check_process_count(requested, torch_knows, trainer_knows)
            messages.append("")
        except TrainingError as error:
            messages.append(str(error))
    return messages
