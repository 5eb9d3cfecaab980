"""How much code there is, beside how much there may be: `python -m tests.lint.budgets`, a part of `make check`.

Lines of Python by room, files of 500 lines, crowded folders, comments per 1,000 lines of the product, and paragraphs
of documents over 60 words. A change that needs more lines removes something else first.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("commands", "pipelines", "components", "serving", "standins", "qinglan")
PRODUCT_LINES, TEST_LINES = 75_600, 78_000
"""Lines that may be there now. They only go down, to the goals."""

PRODUCT_GOAL, TEST_GOAL = 66_000, 68_000
COMMENTS = 8.0
"""Whole-line comments per 1,000 lines of the product, at least."""

FILE_LINES = 500
LOOSE_FILES = 12
STAGE_FILES = 20
"""Files of a stage's, a server's or a stand-in's own folder, and of a folder of tests."""
PARAGRAPH_WORDS = 60


def python_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [path for path in map(Path, listed.splitlines()) if (ROOT / path).is_file()]


def line_count(path: Path) -> int:
    return len((ROOT / path).read_text("utf-8").splitlines())


def comment_count(path: Path) -> int:
    """Count lines that hold a comment and nothing else."""
    tokens = tokenize.generate_tokens(io.StringIO((ROOT / path).read_text("utf-8")).readline)
    return sum(token.type == tokenize.COMMENT and token.line.lstrip().startswith("#") for token in tokens)


def most_files(folder: Path) -> int:
    owned = folder.parts[0] in ("components", "serving", "standins", "tests") or folder.name == "inside"
    return STAGE_FILES if owned else LOOSE_FILES


def crowded(files: list[Path]) -> list[str]:
    loose = Counter(path.parent for path in files if path.name != "__init__.py" and path.parts[0] != "benchmarks")
    return [
        f"{folder}: {count} files, at most {most_files(folder)}"
        for folder, count in sorted(loose.items())
        if count > most_files(folder)
    ]


def long_paragraphs(document: Path) -> list[str]:
    """Paragraphs and bullets over the limit; tables, code and headings do not count."""
    text = re.sub(r"```.*?```", "", document.read_text("utf-8"), flags=re.DOTALL)
    text = re.sub(r"^#+ .*$", "\n", text, flags=re.MULTILINE)  # a heading ends with its line
    text = re.sub(r"^(?=\s*(?:[-*]|\d+\.) )", "\n", text, flags=re.MULTILINE)  # each bullet is a paragraph
    faults = []
    for paragraph in re.split(r"\n\s*\n", text):
        words = [] if paragraph.lstrip().startswith(("|", "<!--")) else paragraph.split()
        if len(words) > PARAGRAPH_WORDS:
            faults.append(f"{document.relative_to(ROOT)}: {len(words)} words: {' '.join(words[:8])} ...")
    return faults


def documents() -> list[Path]:
    """Every page but the change log."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if name != "CHANGELOG.md"]


def main() -> int:
    files = python_files()
    lines = {path: line_count(path) for path in files}
    rooms = {room: sum(count for path, count in lines.items() if path.parts[0] == room) for room in (*ROOMS, "tests")}
    for room, count in rooms.items():
        print(f"{room:12}{count:8,}")
    product = sum(rooms[room] for room in ROOMS)
    comments = sum(comment_count(path) for path in files if path.parts[0] in ROOMS)
    print(f"product     {product:8,} of {PRODUCT_LINES:,}, goal {PRODUCT_GOAL:,}")
    print(f"tests       {rooms['tests']:8,} of {TEST_LINES:,}, goal {TEST_GOAL:,}")
    print(f"comments    {1000 * comments / product:8.1f} per 1,000 lines of the product")
    faults = [f"{path}: {count} lines" for path, count in lines.items() if count >= FILE_LINES]
    faults += crowded(files)
    faults += [fault for document in documents() for fault in long_paragraphs(document)]
    faults += ["the product is over its budget"] * (product > PRODUCT_LINES)
    faults += ["the tests are over their budget"] * (rooms["tests"] > TEST_LINES)
    faults += ["too few comments"] * (1000 * comments < COMMENTS * product)
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
