"""python -m serving.rag.rerank.fit --rows FILE.jsonl --kb TENANT=KB.jsonl --out reranker.json --report fit.html

Fits a tenant's scores on labelled training conversations: the local reranker, and with --reranker-service also the
calibration of that service's scores. The rows are those of the data line (id, tenant_id, conversation_id, question,
need, gold, split); `qinglan run` leaves them beside its indexes.
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

import orjson

from qinglan.errors import ConfigError
from qinglan.files.files import atomic_write
from qinglan.pages.curves import curve_svg
from qinglan.rag.lexical.index import Index, build_index
from qinglan.terminal import say
from serving.programs import exit_on_error
from serving.rag.config import KnowledgeBaseSource, RerankServiceConfig
from serving.rag.rerank.calibration import FittedServiceReranker
from serving.rag.rerank.lexical_reranker import FitReport, RerankerModel
from serving.rag.rerank.reranker_fit import fit_from_rows, write_fitted
from serving.rag.rerank.service_fit import fit_service

TEMPLATE = Path(__file__).parent / "fit.html.j2"
REPORT_SUFFIXES = (".html", ".json")
LOCAL = "local score"
Reports = Mapping[str, FitReport]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m serving.rag.rerank.fit", description="Calibrates a tenant's scores."
    )
    parser.add_argument("--rows", required=True, type=Path, help="JSONL of labelled training questions")
    parser.add_argument("--kb", required=True, metavar="TENANT[/KB]=PATH")
    parser.add_argument("--index-root", type=Path, help="the service's; without it an index is built and thrown away")
    parser.add_argument("--reranker-service", default="", metavar="vllm=|tei=URL,model=NAME")
    parser.add_argument("--out", required=True, type=Path, help="what the service takes as --reranker TENANT=PATH")
    parser.add_argument("--report", type=Path, help="a page if it ends in .html, the numbers if in .json")
    arguments = parser.parse_args()
    with exit_on_error():
        if arguments.report and arguments.report.suffix not in REPORT_SUFFIXES:
            raise ConfigError(f"--report {arguments.report}: let it end in {' or '.join(REPORT_SUFFIXES)}.")
        service = RerankServiceConfig.read(arguments.reranker_service) if arguments.reranker_service else None
        with tempfile.TemporaryDirectory() as temporary:
            root = arguments.index_root or Path(temporary)
            reports = run(arguments.rows, KnowledgeBaseSource.read(arguments.kb), root, service, arguments.out)
        say(*text_table(reports).splitlines())
        if arguments.report:
            write_report(arguments.report, reports)


def run(
    rows: Path, source: KnowledgeBaseSource, root: Path, service: RerankServiceConfig | None, out: Path
) -> Reports:
    """Fit a tenant's reranker and write its file. Returns a report on held-out conversations for each score."""
    tenant, kb = source.tenant_id, source.kb_name
    if source.path is None:
        raise ConfigError(f"--kb {tenant}/{kb}: give the file that was labelled, {tenant}/{kb}=PATH.")
    if service is None:
        return collect_reports(fit_from_rows(rows, source.path, root, tenant, out, kb))
    index = Index.open(build_index(source.path, root, tenant, kb))
    fitted = fit_service(rows, index, service)
    write_fitted(out, fitted)
    return collect_reports(fitted)


def collect_reports(fitted: RerankerModel | FittedServiceReranker) -> Reports:
    if isinstance(fitted, RerankerModel):
        return {LOCAL: fitted.report} if fitted.report else {}
    model = fitted.service.model
    raw = {f"{model}, as it says": fitted.raw} if fitted.raw else {}
    return {**raw, f"{model}, calibrated": fitted.report, **collect_reports(fitted.local)}


def text_table(reports: Reports) -> str:
    """Render the reports as a table for a terminal."""
    if not reports:
        return "Too few labels: the file holds the default, whose scores order passages and are no probabilities."
    first = next(iter(reports.values()))
    head = (
        f"{first.tenant_id}: fitted on {first.fitted_conversations} training conversations, measured on "
        f"{first.held_out_conversations} others ({first.held_out_pairs:,} passages)"
    )
    wide = max(map(len, reports))
    names = f"{'':{wide}}  {'AUC':>6}  {'calibration error':>17}  {'of first passages':>17}  {'first answers':>13}"
    lines = [head, names]
    for name, report in reports.items():
        figures = report.auc, report.calibration_error, report.top1_calibration_error, report.top1_answers
        auc, error, first_error, answers = map(_number, figures)
        lines.append(f"{name:{wide}}  {auc:>6}  {error:>17}  {first_error:>17}  {answers:>13}")
    return "\n".join([*lines, *advice(reports)])


def advice(reports: Reports) -> list[str]:
    """List figures in which the local score beats the service, as reasons not to pay for the service's model."""
    local, service = reports.get(LOCAL), next((report for name, report in reports.items() if name != LOCAL), None)
    if local is None or service is None:
        return []
    compared = {
        "The local score tells passages apart better": (local.auc, service.auc),
        "The search engine's own order has a passage that answers first more often": (
            local.top1_answers, service.top1_answers,
        ),
    }  # fmt: skip
    return [
        f"{figure} ({local_value:.3f}, the service {other:.3f}): serve without it."
        for figure, (local_value, other) in compared.items()
        if local_value is not None and other is not None and local_value > other
    ]


def write_report(path: Path, reports: Reports) -> None:
    with atomic_write(path) as partial:
        if path.suffix == ".json":
            partial.write_bytes(orjson.dumps({name: report.model_dump() for name, report in reports.items()}))
        else:
            partial.write_text(html_page(reports), encoding="utf-8")


def html_page(reports: Reports) -> str:
    """Render the reports as a page with reliability curves; every text in it is escaped."""
    from markupsafe import Markup

    from qinglan.pages.page import render_page

    figures = {}
    for name, report in reports.items():
        points = [(bin.score, bin.frequency) for bin in report.reliability]
        curves = {"as said": [(0.0, 0.0), (1.0, 1.0)], "as it is": points}
        figures[name] = Markup(curve_svg(name, curves))  # noqa: S704 - curve_svg escapes
    return render_page(
        TEMPLATE,
        headline="Calibration of passage scores",
        reports=reports,
        number=_number,
        advice=advice(reports),
        figures=figures,
    )


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
