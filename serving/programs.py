"""End a program at a QinglanError with its message on stderr and its exit code, without a traceback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from qinglan.errors import QinglanError
from qinglan.terminal import say_error


@contextmanager
def exit_on_error() -> Iterator[None]:
    try:
        yield
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)
