"""`qinglan evaluate --beir`: every system rewrites the same queries, and one RAG service retrieves for all.

OUT/
  beir.json  beir.html     the results, and the page
  rewrites.jsonl           each query: what every system, and every seed of it, searched for
  runs/<system>.json       {query: {passage: score}}, as trec_eval's and ir_measures' Python take it
  knowledge_base.jsonl     the corpus as the RAG service takes it; index/ its index
  journal.sqlite           the teacher's paid answers: nothing is paid twice
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import orjson

from commands.beir.collect import collect_rewrites
from commands.beir.dataset import Dataset, read_dataset
from commands.beir.results import PLAIN, Draws, Json, Systems, all_queries, build_report, build_results, measure
from commands.beir.retrieve import Query, Ranking, rag_service, retrieve_all
from commands.beir.rewriters import RemoteRewriter, Rewrites, ask_model, ask_rewriter
from commands.run.run import start_gateway, start_teacher
from components.evaluation.rewriter.score_systems import with_history
from pipelines.execute.execution import run_lock
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import ConfigError
from qinglan.evaluation.gates.evaluation_file import write_evaluation
from qinglan.evaluation.pages.report import write_report
from qinglan.files.digests import digest
from qinglan.files.files import atomic_write
from qinglan.lineage.steps.record import code_version

KNOWLEDGE_BASE = "knowledge_base.jsonl"
RESERVED = (PLAIN, "history", "people", "teacher")
SYSTEM_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,30}$")


class Contenders(NamedTuple):
    """Systems that are measured beside the question alone and the question with its history."""

    models: Mapping[str, Sequence[Path]] = {}
    """Folders by name: of one name, the seeds of one recipe."""

    rewriters: Mapping[str, RemoteRewriter] = {}
    teacher: RunConfig | None = None
    """The profile whose teacher is asked, through its gateway and within its budget."""


Confirm = Callable[[Dataset], None]


def evaluate_beir(
    folder: Path, split: str, tenant: str, contenders: Contenders, root: Path, draws: Draws, confirm: Confirm
) -> Json:
    """Measure all systems and write the files; `confirm` is called before anything is paid."""
    check_names(contenders)
    run = RunDir(root)
    with run_lock(run), ExitStack() as services:
        dataset = read_dataset(folder, split, tenant, root / KNOWLEDGE_BASE)
        if contenders.teacher:
            confirm(dataset)
        url = services.enter_context(rag_service(root / KNOWLEDGE_BASE, tenant, root))
        systems = rewrite_all(dataset, contenders, run, url)
        rankings = retrieve_all(dataset, all_queries(systems), url)
        results = build_results(dataset, systems, measure(dataset, systems, rankings), draws)
        origins = {
            "models": {name: [digest(path) for path in paths] for name, paths in contenders.models.items()},
            "rewriters": {name: str(remote.config.url) for name, remote in contenders.rewriters.items()},
            "code": code_version(),
        }
        results = write_evaluation(root / "beir.json", {**results, **origins})
        write_report(build_report(results), root / "beir.html")
        _write_rewrites(root / "rewrites.jsonl", dataset, systems)
        _write_runs(root / "runs", dataset, systems, rankings)
    return results


def check_names(contenders: Contenders) -> None:
    """Raise a ConfigError if two systems have the same name, or a name is not valid."""
    names = [*contenders.models, *contenders.rewriters]
    for name in names:
        if name in RESERVED or names.count(name) > 1 or not SYSTEM_NAME.match(name):
            raise ConfigError(
                f"System {name!r}: choose another name, of small letters, digits and hyphens, that no other has. "
                f"Taken: {', '.join(RESERVED)}."
            )


def rewrite_all(dataset: Dataset, contenders: Contenders, run: RunDir, rag_url: str) -> Systems:
    """Every system's queries: free systems first, paid ones last."""
    rows = dataset.rows
    systems = {PLAIN: [Rewrites([row.question for row in rows])]}
    if dataset.has_history:
        systems["history"] = [Rewrites([with_history(row) for row in rows])]
    if dataset.has_needs:
        systems["people"] = [Rewrites([row.need or row.question for row in rows])]
    for name, folders in contenders.models.items():
        systems[name] = [
            ask_model(folder, rows, f"{name} {number}" if len(folders) > 1 else name)
            for number, folder in enumerate(folders, 1)
        ]
    for name, config in contenders.rewriters.items():
        systems[name] = [ask_rewriter(config, rows, name)]
    if contenders.teacher:
        systems["teacher"] = [_teacher(dataset, contenders.teacher, run, rag_url)]
    return systems


def _teacher(dataset: Dataset, config: RunConfig, run: RunDir, rag_url: str) -> Rewrites:
    """The teacher's rewrites; where it gives none, the question is searched, as in production."""
    with ExitStack() as services:
        gateway = start_teacher(config, run, services)(config.gateway)
        rag = gateway.rag.model_copy(update={"base_url": rag_url})
        gateway = gateway.model_copy(update={"rag": rag, "judge": gateway.teacher, "examiner": None})
        url = start_gateway(gateway, run, services)
        rewrites = collect_rewrites(gateway.teacher.model, dataset.rows, config.generate.system_prompt, url)
    queries = [rewrite or row.question for rewrite, row in zip(rewrites, dataset.rows, strict=True)]
    return Rewrites(queries, rewrites.count(""))


def _write_rewrites(path: Path, dataset: Dataset, systems: Systems) -> None:
    with atomic_write(path) as partial, partial.open("wb") as file:
        for at, row in enumerate(dataset.rows):
            queries = {name: [rewrites.queries[at] for rewrites in seeds] for name, seeds in systems.items()}
            file.write(orjson.dumps({"id": row.id, "question": row.question, "systems": queries}) + b"\n")


def _write_runs(folder: Path, dataset: Dataset, systems: Systems, rankings: Mapping[Query, Ranking]) -> None:
    folder.mkdir(exist_ok=True)
    for name, seeds in systems.items():
        for number, rewrites in enumerate(seeds, 1):
            run = {
                row.id: {passage: 1 / rank for rank, passage in enumerate(rankings[query].ids, 1)}
                for row, query in zip(dataset.rows, enumerate(rewrites.queries), strict=True)
            }
            file = folder / (f"{name}.{number}.json" if len(seeds) > 1 else f"{name}.json")
            with atomic_write(file) as partial:
                partial.write_bytes(orjson.dumps(run))
