"""Read the prompt files that a profile names together with the profile, so that every stage has the text itself.

generate:
  system_prompt: teacher.txt     # beside the profile; any other text is the prompt itself
"""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from qinglan.config import merge_settings
from qinglan.errors import ConfigError

PROMPT_SETTINGS = (
    ("generate", "system_prompt"),
    ("convert", "system_prompt"),
    ("validate", "need_prompt"),
    ("ppo", "reward", "judge_prompt"),
    ("evaluate", "judge_prompt"),
)


def with_prompt_texts(values: dict[str, Any], profile: Path) -> dict[str, Any]:
    """Replace prompt files in a profile by their texts; one error names all files that cannot be used."""
    faults: list[str] = []
    for names in PROMPT_SETTINGS:
        setting, prompt = ".".join(names), _setting(values, names)
        text: Any = (
            {tenant: _text(value, f"{setting}.{tenant}", profile, faults) for tenant, value in prompt.items()}
            if isinstance(prompt, dict)
            else _text(prompt, setting, profile, faults)
        )
        if text != prompt:
            values = merge_settings(values, reduce(lambda inner, name: {name: inner}, reversed(names), text))
    if faults:
        raise ConfigError(f"{profile}: {'; '.join(faults)}. Write it, or name another; nothing was paid.")
    return values


def _setting(values: Any, names: Sequence[str]) -> Any:
    for name in names:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _text(prompt: Any, setting: str, profile: Path, faults: list[str]) -> Any:
    """Return the text of a prompt file; a prompt that names no file is returned as it is."""
    if not isinstance(prompt, str) or "\n" in prompt.strip() or not prompt.strip().endswith(".txt"):
        return prompt
    path = profile.parent / prompt.strip()
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else "it cannot be read"
        faults.append(f"{setting} names the prompt {path}, and {'there is none' if not path.exists() else why}")
        return prompt
    if not text:
        faults.append(f"{setting} names the prompt {path}, and it is empty")
    return text
