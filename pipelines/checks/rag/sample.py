"""Questions of a sheet with which a RAG service is tried."""

from pathlib import Path

from components.data.convert.config import ConvertConfig
from qinglan.errors import DataError
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Question
from qinglan.rows.splits import split_of

ANY_QUESTION = "怎么使用"
"""The question to ask without a sheet."""


def training_questions(path: Path, columns: Columns, tenant: str, convert: ConvertConfig) -> list[Question]:
    """The sheet's questions for training, of its first tenant, each text once and labelled ones first.

    A calibration may be fitted on these questions, so the locked test is not among them.
    """
    read = read_questions(path, columns, tenant)
    questions = [row for row in read if isinstance(row, Question)]
    splits = [row.split or split_of((row.tenant_id, row.conversation_id), convert) for row in questions]
    usable = [row for row, split in zip(questions, splits, strict=True) if split == "train"]
    if not usable:
        raise DataError(f"{path}: no question for training. Give more rows, or mark some as train.")
    of_tenant = [row for row in usable if row.tenant_id == usable[0].tenant_id]
    distinct: dict[str, Question] = {}
    for row in sorted(of_tenant, key=lambda row: not row.gold):
        distinct.setdefault(row.question, row)
    return [*distinct.values()]
