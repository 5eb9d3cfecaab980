"""Settings of the label stage."""

from pathlib import Path

from pydantic import Field

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.labels import PASSAGE_CHARACTERS


class LabelConfig(Config):
    """How judges label the rows for which the sheet names no gold passage."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """How the need retrieves: the run's, but for the number of passages."""

    listed: int = Field(default=30, ge=10, le=100)
    """Passages of the need that are shown by their titles to the judge, to choose from, where none of the first
    passages answers."""

    chosen: Positive = 2
    """Passages of that list, at most, that are judged."""

    calls_per_row: Positive = 9
    """Paid calls for one row, at most: with the defaults no row needs more."""

    calls: int = Field(default=50_000, ge=0)
    """Paid calls for the labels of all rows, at most; rows beyond are listed. 0 labels nothing."""

    passage_characters: Positive = PASSAGE_CHARACTERS
    """Characters of a passage that a judge reads, the first ones."""

    trial_rows: Positive = 30
    """Rows on which the judge is tested before the others are paid for: an unrelated passage each, and a passage that
    is judged twice."""

    most_faults: Fraction = 0.2
    """Share of the trial in which a judge may call an unrelated passage relevant, contradict itself, or give no
    usable answer; above it nothing is labelled."""

    least_labelled: Fraction = 0.3
    """Share of the rows that must have a relevant passage, by gold or by labels; below it the run stops, as
    nothing should be trained on them."""

    gold_rows: Positive = 60
    """Rows with gold passages, at most, that are judged too where others have none, to measure the judges."""

    checked_rows: Positive = 40
    """Rows in the sheet that people check."""

    corrections: Path | None = None
    """That sheet, filled in by people: their grades count in place of the judges'."""

    seed: Seed = 42
    """Seed that draws the rows of trial, measurement and sheet."""
