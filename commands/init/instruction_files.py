"""Records of LLaMA-Factory's alpaca files as questions; its ShareGPT files are chats, which sheet_formats.py reads.

{"instruction": "...", "input": "...", "output": "...", "history": [["question", "answer"], ...], "system": "..."}
https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html
"""

from collections.abc import Mapping, Sequence
from typing import Any

from qinglan.rows.chat_history import read_history

FIELDS = ("instruction", "input", "history", "output", "chosen", "rejected")


def is_instruction(record: Mapping[str, Any]) -> bool:
    """True for a record with an instruction and an answer; its history, if it has one, must be turns or pairs."""
    history = record.get("history")
    return (
        isinstance(record.get("instruction"), str)
        and bool({"output", "chosen"} & {*record})
        and isinstance(record.get("input") or "", str)
        and (not history or read_history(history) is not None)
    )


def shared_instruction(records: Sequence[Mapping[str, Any]]) -> str:
    """The instruction, a prompt, that all records share although their inputs differ; empty if there is none."""
    instructions = {record["instruction"].strip() for record in records}
    inputs = [(record.get("input") or "").strip() for record in records]
    return instructions.pop() if len(instructions) == 1 and len(set(inputs)) > 1 and all(inputs) else ""


def instruction_question(record: Mapping[str, Any], shared: str) -> dict[str, Any]:
    """The record as a question: instruction, unless it is shared, and input, with history and other fields."""
    parts = ("" if shared else record["instruction"].strip(), (record.get("input") or "").strip())
    question = "\n".join(filter(None, parts))
    history = {"history_summary": record["history"]} if record.get("history") else {}
    return {"question": question, **history, **{key: value for key, value in record.items() if key not in FIELDS}}
