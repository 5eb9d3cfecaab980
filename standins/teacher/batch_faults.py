"""Faults of a whole batch or of one of its lines.

none        no fault
validation  one line is refused, so the batch fails and no row is run
quota       the account's limit of waiting tokens is exceeded, so the batch fails
expired     half of the rows are answered; each other row has an error line
cancelled   half of the rows are answered; the other rows have no line
missing     one row has no line
twice       one row has two lines
stranger    one line answers an unknown row
broken      one row has status 500
refused     one row has status 400
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
    """Parse a list of faults with commas between them, one for each batch in their order."""
    faults: list[Fault] = []
    for word in filter(None, (part.strip() for part in words.split(","))):
        if word not in get_args(Fault):
            raise ConfigError(f"--batch-faults {word}: there are {', '.join(get_args(Fault))}.")
        faults.append(word)  # type: ignore[arg-type]
    return faults


def batch_error(fault: Fault) -> dict[str, Any] | None:
    """Error of a batch that is not run because of the fault; None if the batch is run."""
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
    """Apply the fault to a result line: change, drop or repeat it."""
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
