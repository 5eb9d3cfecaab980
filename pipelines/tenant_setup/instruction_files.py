"""Records of LLaMA-Factory's alpaca files as questions; its ShareGPT files are chats, which sheet_formats.py reads.

{"instruction": "...", "input": "...", "output": "...", "history": [["question", "answer"], ...], "system": "..."}
https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html
"""

from collections.abc import Mapping
from typing import Any

FIELDS = ("instruction", "input", "history", "output", "chosen", "rejected")


def is_instruction(record: Mapping[str, Any]) -> bool:
    """True for an instruction with an answer, and with turns as pairs if it has a history."""
    pairs = record.get("history") or []
    return (
        isinstance(record.get("instruction"), str)
        and bool({"output", "chosen"} & {*record})
        and isinstance(record.get("input") or "", str)
        and isinstance(pairs, list)
        and all(isinstance(pair, list) and len(pair) == 2 and _texts(pair) for pair in pairs)
    )


def instruction_question(record: Mapping[str, Any]) -> dict[str, Any]:
    """The question is the instruction with its input, as in training, and the pairs are what was said before."""
    turns = [
        {"role": role, "content": text}
        for pair in record.get("history") or []
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    question = "\n".join(filter(None, (record["instruction"].strip(), (record.get("input") or "").strip())))
    rest = {key: value for key, value in record.items() if key not in FIELDS}
    return {"question": question, **({"history_summary": turns} if turns else {}), **rest}


def _texts(pair: list[Any]) -> bool:
    return all(isinstance(text, str) for text in pair)
