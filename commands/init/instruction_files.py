"""Turn records of LLaMA-Factory's alpaca files into questions. Its ShareGPT files are read by sheet_formats.py.

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
    """Return the instruction that all records share, if their inputs differ: it is a prompt and no question. Empty if
    there is none."""
    instructions = {record["instruction"].strip() for record in records}
    inputs = [(record.get("input") or "").strip() for record in records]
    return instructions.pop() if len(instructions) == 1 and len(set(inputs)) > 1 and all(inputs) else ""


def instruction_question(record: Mapping[str, Any], shared: str) -> dict[str, Any]:
    """Turn a record into a question: its instruction, unless all records share it, and its input. The history and
    other fields are kept."""
    parts = ("" if shared else record["instruction"].strip(), (record.get("input") or "").strip())
    question = "\n".join(filter(None, parts))
    history = {"history_summary": record["history"]} if record.get("history") else {}
    return {"question": question, **history, **{key: value for key, value in record.items() if key not in FIELDS}}
