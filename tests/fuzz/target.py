"""A parser to be searched, and its faults: exceptions that are no refusals, and answers that take too long.

What takes too much memory is an exception too.
"""

import io
import resource
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import QinglanError

Parse = Callable[[bytes], object]

LONGEST_SECONDS = 10.0
"""Time that the processor works on one input; what takes longer has no bound."""

MOST_MEMORY = 2 << 30
"""Bytes that the process may grow by while it parses one input; more is a MemoryError, and not the machine's end."""

SHRINKING_SECONDS = 60.0


class Target(NamedTuple):
    """One parser, or several of the same bytes."""

    parse: Parse
    seeds: tuple[bytes, ...]
    refuses: tuple[type[Exception], ...] = (QinglanError,)
    """The errors by which it refuses."""


def archive_part(archive: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(archive)) as whole:
        return whole.read(name)


def with_part(archive: bytes, name: str, content: bytes) -> bytes:
    """The archive with other bytes under this name."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as whole, zipfile.ZipFile(out, "w") as changed:
        for part in whole.namelist():
            changed.writestr(part, content if part == name else whole.read(part))
    return out.getvalue()


@contextmanager
def file_of(content: bytes, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        yield path


def from_file(name: str, parse: Callable[[Path], object]) -> Parse:
    """A parser of a file, as a parser of its bytes."""

    def parse_bytes(content: bytes) -> None:
        with file_of(content, name) as path:
            parse(path)

    return parse_bytes


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Let the process grow by MOST_MEMORY and no further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit if soft == resource.RLIM_INFINITY else min(soft, limit), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def fault_of(target: Target, content: bytes) -> BaseException | None:
    """Parse the content; None if the parser answered, or refused in words, in time and within the memory."""
    started = time.process_time()
    try:
        with bounded_memory():
            target.parse(content)
    except target.refuses:
        pass
    except (Exception, SystemExit) as error:
        return error
    seconds = time.process_time() - started
    return TimeoutError(f"an answer took {seconds:.0f} s") if seconds > LONGEST_SECONDS else None


def smallest(content: bytes, still_fails: Callable[[bytes], bool]) -> bytes:
    """The content without each piece that the failure does not need: first half of it, at last single bytes."""
    end, size = time.monotonic() + SHRINKING_SECONDS, len(content)
    while size := size // 2:
        at = 0
        while at < len(content) and time.monotonic() < end:
            shorter = content[:at] + content[at + size :]
            if still_fails(shorter):
                content = shorter
            else:
                at += size
    return content
