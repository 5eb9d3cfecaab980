"""Every failure a user can meet, by the boundary that was crossed.

QinglanError
├── ConfigError    a configuration or command that cannot be run       exit 2
├── DataError      a spreadsheet, row or knowledge base that is wrong   exit 3
│   └── ConflictError   a name that somebody else moved meanwhile
├── OutageError    something we depend on gave no answer                exit 4
├── BudgetError    the next call would pass the budget                  exit 5
├── TrainingError  a training that stopped or learned nothing usable    exit 6
├── GateHeldError  a verdict stops the run: a result, not a fault       exit 7
├── AlteredError   changed bytes, or a signature that does not count   exit 8
├── IncompleteAuditError   an audit found nothing altered, and not everything   exit 9
└── RowError       one row's call failed for good: it is quarantined, the run continues

A message says where, what, and the next step. An outage is never a score and never a silent fallback.
"""


class QinglanError(Exception):
    """Anything we can explain; `exit_code` is what the command line ends with.

    Each argument is a line of the message. A line break inside of one was not ours, and is printed as a code.
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
    """The kind of failure that a program of ours ended with."""
    # The classes above come before any of another module, since __subclasses__ keeps the order of definition.
    kinds = (kind for kind in QinglanError.__subclasses__() if kind.exit_code != QinglanError.exit_code)
    return next((kind for kind in kinds if kind.exit_code == exit_code), QinglanError)


class RowError(QinglanError):
    """One row could not be answered; `reason` is a short word, `raw` what came back instead of an answer."""

    def __init__(self, reason: str, message: str, raw: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.raw = raw
