"""Errors that a user can meet, each with its own exit code.

QinglanError
├── ConfigError    a configuration or command that cannot be run       exit 2
├── DataError      a spreadsheet, row or knowledge base that is wrong   exit 3
│   └── ConflictError   a name or service that another person or process changed meanwhile
├── OutageError    something we depend on gave no answer                exit 4
├── BudgetError    the next call would pass the budget                  exit 5
├── TrainingError  a training that stopped or learned nothing usable    exit 6
├── GateHeldError  a verdict stops the run: a result, not a fault       exit 7
├── AlteredError   changed bytes, or a signature that does not count   exit 8
├── IncompleteAuditError   nothing was altered, but not everything could be verified   exit 9
└── RowError       one row's call failed after all tries: the row is quarantined, the run continues

A message says where, what, and the next step. An outage is never turned into a score or a silent fallback.
"""


class QinglanError(Exception):
    """Base class of errors with an explanation for the user. The command line exits with `exit_code`.

    Each argument is one line of the message. A line break inside an argument comes from foreign text, and is printed
    as a code.
    """

    exit_code = 1

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(map(str, lines)))
        self.lines = lines


class ConfigError(QinglanError):
    exit_code = 2


class DataError(QinglanError):
    exit_code = 3


class ConflictError(DataError):
    pass


class OutageError(QinglanError):
    exit_code = 4


class BudgetError(QinglanError):
    exit_code = 5


class TrainingError(QinglanError):
    exit_code = 6


class GateHeldError(QinglanError):
    exit_code = 7


class AlteredError(QinglanError):
    exit_code = 8


class IncompleteAuditError(QinglanError):
    exit_code = 9


def error_class_for(exit_code: int) -> type[QinglanError]:
    """Return the error class with this exit code; QinglanError if no class has it."""
    # The classes above come before any of another module, since __subclasses__ keeps the order of definition.
    kinds = (kind for kind in QinglanError.__subclasses__() if kind.exit_code != QinglanError.exit_code)
    return next((kind for kind in kinds if kind.exit_code == exit_code), QinglanError)


class RowError(QinglanError):
    """No usable answer came for one row. `reason` names the fault in a word, and `raw` is the text that came
    instead."""

    def __init__(self, reason: str, message: str, raw: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.raw = raw
