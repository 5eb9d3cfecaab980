"""A parser with a fault behind a row of conditions, which only a search that sees the lines it reaches passes."""

from qinglan.errors import DataError
from tests.fuzz.target import Target

HIDDEN = b"7#qZ!"


def parse(content: bytes) -> int:
    if content[0:1] != b"7":
        raise DataError("byte 0 is another")
    if content[1:2] != b"#":
        raise DataError("byte 1 is another")
    if content[2:3] != b"q":
        raise DataError("byte 2 is another")
    if content[3:4] != b"Z":
        raise DataError("byte 3 is another")
    if content[4:5] != b"!":
        raise DataError("byte 4 is another")
    return len(content) // (len(content) - len(content))


def whole(content: bytes) -> int:
    return len(content)


def targets() -> dict[str, Target]:
    return {"planted": Target(parse, (b"a good input",)), "whole": Target(whole, (b"a good input",))}
