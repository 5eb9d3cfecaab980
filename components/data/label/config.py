"""Settings of the label stage."""

from pathlib import Path

from pydantic import Field

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.labels import PASSAGE_CHARACTERS


class LabelConfig(Config):
    """Labels by judges for the rows without gold passages."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Retrieval settings for the searches with a row's rewrite and need. The search with the need returns `listed`
    passages instead. A run sets its own settings."""

    listed: int = Field(default=30, ge=10, le=100)
    """Number of passages from whose titles the judge chooses if none of the first passages answers the need."""

    chosen: Positive = 2
    """Highest number of passages that the judge chooses from the `listed` ones."""

    calls_per_row: Positive = 9
    """Highest number of paid calls for one row. With the defaults no row needs more."""

    calls: int = Field(default=50_000, ge=0)
    """Highest number of paid calls for all labels; 0 labels nothing. Rows beyond it are listed in `label_holes`."""

    passage_characters: Positive = PASSAGE_CHARACTERS
    """Characters of a passage that a judge reads, from its beginning."""

    trial_rows: Positive = 30
    """Number of rows on which the judge is tested before the other rows are paid for. For each, it judges an
    unrelated passage once, and one of the row's passages twice."""

    most_faults: Fraction = 0.2
    """Highest share of each kind of fault in the test on `trial_rows`; above it nothing is labelled. Faults are an
    unrelated passage called relevant, two different judgements of a passage, and an unusable answer."""

    least_labelled: Fraction = 0.3
    """Lowest share of rows with a relevant passage, by gold or labels. Below it the run stops before training."""

    gold_rows: Positive = 60
    """Highest number of rows with gold passages that are judged too, to measure the judges."""

    checked_rows: Positive = 40
    """Number of rows in the sheet that people check."""

    corrections: Path | None = None
    """Path of an earlier run's label sheet that people have filled in. Their grades replace the judges' grades."""

    seed: Seed = 42
    """Seed that draws `trial_rows`, `gold_rows` and `checked_rows`."""
