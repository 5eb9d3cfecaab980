"""The ways in which batches go wrong, for the whole of one or for some of its lines.

none        all is well
validation  one line is refused, and with it the batch is failed: none of its rows is run
quota       more tokens are waiting than the account may have: the batch is failed
expired     half of the rows in time, the others with a line that says so
cancelled   half of the rows in time, of the others not a word
missing     one row is answered nowhere
twice       one row is answered twice
stranger    one line answers a row that nobody asked
broken      one row ends in a 500
refused     one row ends in a 400
garbled     one line is not JSON
"""

from typing import Any, Literal, get_args

from qinglan.errors import ConfigError

Fault = Literal[
    "none",
    "validation",
    "quota",
    "expired",
    "cancelled",
    "missing",
    "twice",
    "stranger",
    "broken",
    "refused",
    "garbled",
]
HALF_DONE = {"expired", "cancelled"}


def read_faults(words: str) -> list[Fault]:
    """One for each batch to come."""
    faults: list[Fault] = []
    for word in filter(None, (part.strip() for part in words.split(","))):
        if word not in get_args(Fault):
            raise ConfigError(f"--batch-faults {word}: there are {', '.join(get_args(Fault))}.")
        faults.append(word)  # type: ignore[arg-type]
    return faults


def batch_error(fault: Fault) -> dict[str, Any] | None:
    """Why the batch is not run at all."""
    if fault == "validation":
        return {"code": "invalid_request", "message": "The line is no request.", "param": "body", "line": 1}
    if fault == "quota":
        return {
            "code": "token_limit_exceeded",
            "message": "Enqueued token limit reached.",
            "param": None,
            "line": None,
        }
    return None


def apply_fault(fault: Fault, line: dict[str, Any]) -> list[dict[str, Any] | bytes]:
    """The result line as the fault changes it, drops it or repeats it."""
    if fault == "missing":
        return []
    if fault == "twice":
        return [line, line]
    if fault == "stranger":
        return [line, {**line, "custom_id": "nobody"}]
    if fault == "garbled":
        return [b'{"custom_id": "' + str(line["custom_id"]).encode()]
    if fault in ("broken", "refused"):
        status = 500 if fault == "broken" else 400
        body = {"error": {"message": "It did not work.", "type": "server_error", "param": None, "code": None}}
        return [{**line, "response": {"status_code": status, "request_id": "r", "body": body}}]
    return [line]
