"""Settings of the generate stage."""

from qinglan.config import Config, Fraction, Name, Positive
from qinglan.prompts import SystemPrompt
from qinglan.rows.questions import Columns


class GenerateConfig(Config):
    """How a spreadsheet of questions becomes the teacher's rewrites."""

    tenant_id: Name
    """Tenant of rows without one."""

    columns: Columns = Columns()
    """Names of the sheet's columns."""

    system_prompt: SystemPrompt = ""
    """Teacher's system prompt: a text, a .txt file beside the profile, or one of these for each tenant of the sheet.
    Empty takes qinglan/prompts."""

    rows_under_way: Positive = 64
    """Rows held in memory at once. The gateway limits the paid calls."""

    max_lost: Fraction = 0.2
    """Largest share of questions without a usable answer by the teacher. Above it the run stops before later stages
    are paid; above 5 % it warns."""
