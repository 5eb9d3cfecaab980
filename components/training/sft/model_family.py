"""Find ms-swift's names for a base model's family in the base's files.

ms-swift guesses these names from the folder's name, but our folder is called base_model. For Qwen3's weights it then
finds three architectures and six chat templates, and stops (swift/model/model_meta.py, get_matched_model_types).
"""

from pathlib import Path

from components.training.sft.config import SftConfig
from qinglan.documents import parse_json_mapping
from qinglan.errors import ConfigError, DataError
from qinglan.files.plain_files import read_plain
from qinglan.prompts import Message

TEMPLATES = {"": "chatml", "<think>\n\n</think>\n\n": "qwen3"}
"""Name of ms-swift's template, by the text before the answer in a ChatML prompt with thinking off."""


def with_family(config: SftConfig, base: Path, prompt: str, messages: list[Message]) -> SftConfig:
    """Return the settings with `model_type` and `template` filled in. The base renders `messages` as `prompt`."""
    return config.model_copy(
        update={
            "model_type": config.model_type or read_model_type(base),
            "template": config.template or match_template(base, prompt, messages),
        }
    )


def read_model_type(base: Path) -> str:
    """Return the architecture's name in transformers. ms-swift has the same names for the families that it trains."""
    path = base / "config.json"
    try:
        return str(parse_json_mapping(read_plain(path), str(path))["model_type"])
    except (OSError, DataError, KeyError) as error:
        raise ConfigError(
            f"{path}: no model_type to be read ({type(error).__name__}: {error}). Name it in sft.model_type, or "
            "download the base again."
        ) from error


def match_template(base: Path, prompt: str, messages: list[Message]) -> str:
    """Return the template that renders the same prompt in training as in serving."""
    turns = "".join(f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in messages)
    for before_answer, template in TEMPLATES.items():
        if prompt == f"{turns}<|im_start|>assistant\n{before_answer}":
            return template
    raise ConfigError(
        f"{base}: its chat template renders {prompt[:80]!r}..., which is neither ChatML nor Qwen3's. Name ms-swift's "
        "template for it in sft.template; it must render the same text."
    )
