"""Check the chats for training, and shorten them to the student's length, before a training starts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from components.training.sft.config import SftConfig
from qinglan.errors import DataError
from qinglan.files.files import write_atomically
from qinglan.prompts import Message, refuse_control_tokens
from qinglan.rewriter.model import fit_prompt
from qinglan.rows.rows import QuarantinedRow

TURN_END = 2
"""Number of tokens that ms-swift adds after an answer: the end of the turn, and a line end."""


class Chats(NamedTuple):
    """Facts about the chats of a file."""

    rows: int
    system_prompts: dict[str, str]
    first: list[Message]


def read_chats(path: Path) -> Chats:
    """Read the chats; a DataError if one is incomplete, or if rows of a tenant have different system prompts."""
    rows, prompts, first = 0, dict[str, str](), list[Message]()
    if not path.is_file():
        raise DataError(f"{path}: no such file. The convert stage writes it.")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            messages, tenant = _read(line, f"{path}:{number}")
            if prompts.setdefault(tenant, messages[0]["content"]) != messages[0]["content"]:
                raise DataError(
                    f"{path}:{number}: another system prompt than the rows of {tenant!r} before. "
                    "Serving shows one; run the convert stage again."
                )
            first = first or messages
            rows += 1
    if not rows:
        raise DataError(
            f"{path}: no rows to learn from. Look at what the validate stage accepted, and at its why not."
        )
    return Chats(rows, prompts, first)


def _read(line: bytes, where: str) -> tuple[list[Message], str]:
    try:
        row: dict[str, Any] = orjson.loads(line)
        messages, tenant = row["messages"], str(row["metadata"]["tenant_id"])
        roles = [message["role"] for message in messages]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(
            f"{where}: no chat row ({type(error).__name__}: {error}). Run the convert stage again."
        ) from error
    if roles != ["system", "user", "assistant"] or not str(messages[2]["content"]).strip():
        raise DataError(
            f"{where}: a chat is system, user and an assistant's answer; this one is {', '.join(roles) or 'empty'}"
            f"{'' if 'assistant' not in roles else ' with an empty answer'}. Run the convert stage again."
        )
    refuse_control_tokens(messages, where)
    return messages, tenant


class FittedChats(NamedTuple):
    """Counts of the chats that ms-swift gets, and the rows that were left out."""

    rows: int
    trimmed: int
    """Rows whose oldest turns of a long history were left out."""

    too_long: tuple[QuarantinedRow, ...]
    """Rows that were left out, since they are too long even without any history."""


def write_fitting(tokenizer: Any, source: Path, target: Path, config: SftConfig) -> FittedChats:
    """Write the chats that ms-swift gets. A chat that fits is copied byte for byte.

    Chats that are too long without any history are left out and listed, since ms-swift would drop them silently. A
    DataError is raised if no chat is left.
    """
    lines, trimmed, too_long = [], 0, []
    for number, line in enumerate(source.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        row = orjson.loads(line)
        answer = row["messages"][2]["content"]
        room = config.max_length - TURN_END - len(_ids(tokenizer, answer))
        prompt = fit_prompt(tokenizer, row["messages"][:2], min(config.max_prompt_tokens, room))
        # Prompt and answer are counted together, since a token may span both.
        if (count := len(_ids(tokenizer, prompt.text + answer))) >= config.max_length:
            too_long.append(_left_out(row, f"{source.name}:{number}", count, config.max_length))
            continue
        if prompt.trimmed:
            line = orjson.dumps(row | {"messages": [*prompt.messages, row["messages"][2]]})
            trimmed += 1
        lines.append(line + b"\n")
    if not lines:
        raise DataError(
            f"{source}: all {len(too_long):,} rows are longer than sft.max_length without any history. The first: "
            f"{too_long[0].detail} Raise it, or shorten the rows' questions or profiles in the sheet."
        )
    write_atomically(target, b"".join(lines))
    return FittedChats(len(lines), trimmed, tuple(too_long))


def _left_out(row: Mapping[str, Any], where: str, tokens: int, most: int) -> QuarantinedRow:
    about = row["metadata"]
    detail = f"{tokens:,} tokens without any history, and sft.max_length is {most:,}."
    return QuarantinedRow(
        id=str(about.get("id", "")), tenant_id=str(about["tenant_id"]), where=where, stage="sft", reason="too_long",
        detail=detail,
    )  # fmt: skip


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids
