"""How sure the local reranker may be, and whether its order would be better than BM25's. `make bench-reranker`

Sample tenants, seed 100. Fitted on training conversations; calibration is measured on training conversations
that were held out, order on dev. The table in serving/rag/README.md is this one.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.report import report
from benchmarks.samples import Case, ask, dev_cases
from qinglan.files.files import dump_line
from qinglan.prompts import need_messages
from qinglan.rag.lexical.index import Index, build_index
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Question
from serving.rag.rerank.fit import CANDIDATES, fit_from_rows
from serving.rag.rerank.lexical_reranker import LexicalReranker, RerankerModel
from standins.samples import TENANTS, write_sample
from standins.samples.sample_writer import KNOWLEDGE_BASE, QUESTIONS
from standins.teacher.extractive_backend import ExtractiveBackend, load_extractive_backend

CONVERSATIONS, SEED, LABELS = 1000, 100, 1000
WELL_CALIBRATED = 0.03

Text = Callable[[Question], str]


def main() -> None:
    calibration, order = (
        _table("Calibration, held-out training conversations", "fitted with", "AUC", "ECE", "ECE of first passages"),
        _table("Gold passage first, dev", "query", "BM25", "reranked"),
    )
    worst = 0.0
    for tenant in TENANTS:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            write_sample(tenant, root, CONVERSATIONS, SEED)
            brain = load_extractive_backend({tenant: root / KNOWLEDGE_BASE})
            fits = {name: _fit(root, tenant, text) for name, text in _needs(tenant, brain).items()}
            for name, fitted in fits.items():
                assert fitted.report is not None
                fit = fitted.report
                calibration.add_row(
                    tenant, name, f"{fit.auc:.3f}", f"{fit.calibration_error:.3f}",
                    f"{fit.top1_calibration_error:.3f}",
                )  # fmt: skip
                worst = max(worst, fit.calibration_error or 0.0)
            index = Index.open(build_index(root / KNOWLEDGE_BASE, root / "index", tenant))
            scorer = LexicalReranker(index, fits["history + question"])
            cases = list(dev_cases(root, tenant))
            for name, query in _queries(tenant, brain).items():
                plain, reranked = _top1(index, scorer, [(query(case), case) for case in cases])
                order.add_row(tenant, name, f"{plain:.3f}", f"{reranked:.3f}")
    console = Console(width=110)
    console.print(calibration, order)
    report("reranker", worst, WELL_CALIBRATED, worst <= WELL_CALIBRATED, worst_calibration_error=worst)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("tenant", *columns):
        table.add_column(name)
    return table


def _needs(tenant: str, brain: ExtractiveBackend) -> dict[str, Text]:
    """Texts of the labelled rows' need column when the reranker is fitted."""
    return {"stated needs": lambda row: _need(brain, tenant, row), "history + question": lambda row: ""}


def _queries(tenant: str, brain: ExtractiveBackend) -> dict[str, Callable[[Case], str]]:
    return {
        "the plain question": lambda case: case.question.question,
        "a standalone question": lambda case: _need(brain, tenant, case.question),
        "history and question": lambda case: f"{case.question.history_summary} {case.question.question}",
        "item and house term": lambda case: f"{case.slice['item']} {case.slice['aspect']}",
    }


def _need(brain: ExtractiveBackend, tenant: str, row: Question) -> str:
    return ask(brain, tenant, need_messages(row))


def _fit(root: Path, tenant: str, need: Text) -> RerankerModel:
    rows = root / "labelled.jsonl"
    questions = (
        row for row in read_questions(root / QUESTIONS, Columns(), tenant) if isinstance(row, Question) and row.gold
    )
    train = [row.model_copy(update={"need": need(row)}) for row in questions if row.split == "train"][:LABELS]
    rows.write_bytes(b"".join(map(dump_line, train)))
    return fit_from_rows(rows, root / KNOWLEDGE_BASE, root / "index", tenant, root / "reranker.json")


def _top1(index: Index, scorer: LexicalReranker, labelled_cases: list[tuple[str, Case]]) -> tuple[float, float]:
    """Share of questions whose first passage is gold: as BM25 orders them, and as the score would."""
    plain = reranked = 0
    for query, case in labelled_cases:
        numbers = [hit.number for hit in index.search(query, CANDIDATES)]
        if numbers:
            scores = scorer.scores(query, numbers)
            best = numbers[max(range(len(numbers)), key=scores.__getitem__)]
            plain += index.passage(numbers[0]).id in case.question.gold
            reranked += index.passage(best).id in case.question.gold
    return plain / len(labelled_cases), reranked / len(labelled_cases)


if __name__ == "__main__":
    main()
