"""Settings of the generate stage."""

from qinglan.config import Config, Fraction, Name, Positive
from qinglan.prompts import SystemPrompt
from qinglan.rows.questions import Columns


class GenerateConfig(Config):
    """How a spreadsheet of questions becomes the teacher's rewrites."""

    tenant_id: Name
    """The tenant of rows that name none."""

    columns: Columns = Columns()
    """How the sheet names its columns."""

    system_prompt: SystemPrompt = ""
    """The teacher's prompt: a text, a .txt file beside the profile, or one of these for each tenant of the sheet.
    Empty takes qinglan/prompts."""

    rows_under_way: Positive = 64
    """Rows held in memory at once. The gateway, not this, limits the paid calls."""

    max_lost: Fraction = 0.2
    """Share of the questions that may be lost because the teacher gave no usable answer. Above it the run stops
    before later stages are paid; above 5 % it warns."""
