"""The plan's alarms: pure functions over the metrics of the steps so far."""

from typing import Literal, NamedTuple


class Alarm(NamedTuple):
    """Something a person should know of a training under way."""

    name: str
    level: Literal["warn", "stop"]
    message: str
    """What is seen, its likely cause, and the next step."""
