"""Settings of the label stage."""

from pathlib import Path

from pydantic import Field

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.labels import PASSAGE_CHARACTERS


class LabelConfig(Config):
    """Labels by judges for the rows without gold passages."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Retrieval settings of the need, except the number of passages; a run sets its own."""

    listed: int = Field(default=30, ge=10, le=100)
    """Passages of the need from whose titles the judge chooses, if none of the first passages answers."""

    chosen: Positive = 2
    """Most passages of that list that are judged."""

    calls_per_row: Positive = 9
    """Most paid calls for one row; with the defaults no row needs more."""

    calls: int = Field(default=50_000, ge=0)
    """Most paid calls for the labels of all rows; further rows are listed. 0 labels nothing."""

    passage_characters: Positive = PASSAGE_CHARACTERS
    """Characters of a passage that a judge reads, from its beginning."""

    trial_rows: Positive = 30
    """Rows for a test of the judge before the others are paid for: it judges an unrelated passage of each row, and
    one passage of the row twice."""

    most_faults: Fraction = 0.2
    """Largest share of that test in which a judge may call an unrelated passage relevant, contradict itself, or give
    no usable answer; above it nothing is labelled."""

    least_labelled: Fraction = 0.3
    """Share of the rows that must have a relevant passage, by gold or labels; below it the run stops before
    training."""

    gold_rows: Positive = 60
    """Most rows with gold passages that are judged too, to measure the judges."""

    checked_rows: Positive = 40
    """Rows in the sheet that people check."""

    corrections: Path | None = None
    """Path of that sheet, filled in by people: their grades replace those of the judges."""

    seed: Seed = 42
    """Seed that draws the rows of test, measurement and sheet."""
