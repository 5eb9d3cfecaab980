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


def refusals(cases: list[tuple[int, int, int]]) -> list[str]:
    """What our plug-in says, given the processes asked for, those torch knows of, and those the trainer knows of.

    Empty where they train together.
    """
    from components.training.sft.plugin.together import check_process_count

    messages = []
    for wanted, torch_knows, trainer_knows in cases:
        try:
            check_process_count(wanted, torch_knows, trainer_knows)
            messages.append("")
        except TrainingError as error:
            messages.append(str(error))
    return messages
