"""All lines by name, and the file names of their artifacts."""

from pipelines.lines.rewriter import REWRITER
from pipelines.lines.style import STYLE

LINES = {line.name: line for line in (REWRITER, STYLE)}

ARTIFACT_FILES = {name: file for line in LINES.values() for name, file in line.files.items()}
"""File name that people see for each artifact of the graphs, by the artifact's name."""
