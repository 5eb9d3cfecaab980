"""Settings of the generate stage."""

from qinglan.config import Config, Name, Positive
from qinglan.questions import Columns


class GenerateConfig(Config):
    """How a spreadsheet of questions becomes the teacher's rewrites."""

    tenant_id: Name
    """The tenant of rows that name none."""

    columns: Columns = Columns()
    """How the sheet names its columns."""

    system_prompt: str = ""
    """Replaces the tenant's prompt in qinglan/prompts; empty keeps it."""

    rows_under_way: Positive = 64
    """Rows held in memory at once. The gateway, not this, limits the paid calls."""
