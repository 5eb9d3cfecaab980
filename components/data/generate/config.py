"""Settings of the generate stage."""

from qinglan.config import Config, Fraction, Name, Positive
from qinglan.prompts import SystemPrompt
from qinglan.rows.questions import Columns


class GenerateConfig(Config):
    """Rewriting of a spreadsheet's questions by the teacher."""

    tenant_id: Name
    """Tenant of rows that name no tenant."""

    columns: Columns = Columns()
    """Names of the sheet's columns."""

    system_prompt: SystemPrompt = ""
    """Teacher's system prompt: a text, a .txt file beside the profile, or one of these for each tenant of the sheet.
    If empty, the prompts of qinglan/prompts are used."""

    rows_under_way: Positive = 64
    """Number of rows held in memory at once. The gateway limits the paid calls."""

    max_lost: Fraction = 0.2
    """Highest share of questions that the teacher may leave without a usable answer. Above it the run stops before
    later stages are paid. Above 5 % it warns."""
