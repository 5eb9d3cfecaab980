"""The lines there are, by name, and the files of their runs."""

from pipelines.lines.rewriter import REWRITER
from pipelines.lines.style import STYLE

LINES = {line.name: line for line in (REWRITER, STYLE)}

ARTIFACT_FILES = {name: file for line in LINES.values() for name, file in line.files.items()}
"""Artifact names of the graphs, and what a person calls them."""
