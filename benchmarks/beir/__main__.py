"""python -m benchmarks.beir DIR --run RUN: rewriters on a public retrieval benchmark in BEIR's layout.

Every system rewrites the same queries, and one RAG service retrieves for all. OUT/
  beir.json  beir.html     the results, and the page
  rewrites.jsonl           each query: what every system, and every seed of it, searched for
  runs/<system>.json       {query: {passage: score}}, as trec_eval's and ir_measures' Python take it
  knowledge_base.jsonl     the corpus as the RAG service takes it; index/ its index
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks.beir.dataset import Dataset, read_dataset
from benchmarks.beir.results import PLAIN, Draws, Json, Systems, build_report, build_results, measure
from benchmarks.beir.retrieve import Query, Ranking, rag_service, retrieve_all
from benchmarks.beir.rewriters import (
    RemoteRewriter,
    Rewrites,
    ask_model,
    ask_rewriter,
    read_model,
    read_rewriter,
    run_models,
)
from components.evaluation.rewriter.score_systems import with_history
from qinglan.errors import ConfigError, QinglanError
from qinglan.evaluation.gates.evaluation_file import write_evaluation
from qinglan.evaluation.pages.report import to_markdown, write_report
from qinglan.files.digests import digest
from qinglan.files.files import atomic_write
from qinglan.lineage.steps.record import code_version
from qinglan.terminal import say, say_error
from qinglan.terminal.console import Console, markdown

RESERVED = (PLAIN, "history", "people")
SYSTEM_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,30}$")


class Contenders(NamedTuple):
    """Systems that are measured beside the question only and the question with its history."""

    models: Mapping[str, Sequence[Path]] = {}
    """Folders by name; several folders of one name are the seeds of one recipe."""

    rewriters: Mapping[str, RemoteRewriter] = {}


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="python -m benchmarks.beir", description="Rewriters on a public benchmark.")
    out.add_argument("folder", type=Path, help="corpus.jsonl, queries.jsonl, qrels/, and conversations.jsonl if any")
    out.add_argument("--split", default="test", help="judgements: qrels/SPLIT.tsv")
    out.add_argument("--run", type=Path, action="append", default=[], help="a run's folder: its models sft and rl")
    out.add_argument("--model", action="append", default=[], help="NAME=FOLDER of a rewriter or release")
    out.add_argument(
        "--rewriter", action="append", default=[],
        help="NAME=URL, or NAME=openai=URL,model=MODEL; ,key=VARIABLE names the variable of an API key",
    )  # fmt: skip
    out.add_argument("--tenant", default="fivedoctors", help="tenant in whose prompts every system is asked")
    out.add_argument("--out", type=Path, help="runs/beir-<folder> by default")
    out.add_argument("--draws", type=int, default=10_000, help="draws of each interval")
    out.add_argument("--seed", type=int, default=0, help="seed of the draws")
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    root = options.out or Path("runs") / f"beir-{options.folder.resolve().name}"
    contenders = read_contenders(options.run, options.model, options.rewriter)
    results = evaluate(
        options.folder, options.split, options.tenant, contenders, root, Draws(options.draws, options.seed)
    )
    Console().print(markdown(to_markdown(build_report(results), notes=True)))
    say(f"{root / 'beir.html'}  {root / 'beir.json'}")


def read_contenders(runs: Sequence[Path], models: Sequence[str], rewriters: Sequence[str]) -> Contenders:
    """Parse the options; a ConfigError if two systems have one name, or a name is not valid."""
    folders: dict[str, list[Path]] = {}
    for name, path in [*(pair for run in runs for pair in run_models(run).items()), *map(read_model, models)]:
        folders.setdefault(name, []).append(path)
    remote = list(map(read_rewriter, rewriters))
    names = [*folders, *(name for name, _ in remote)]
    for name in names:
        if name in RESERVED or names.count(name) > 1 or not SYSTEM_NAME.match(name):
            raise ConfigError(
                f"System {name!r}: choose another name, of small letters, digits and hyphens, that no other has. "
                f"Taken: {', '.join(RESERVED)}."
            )
    return Contenders(folders, dict(remote))


def evaluate(folder: Path, split: str, tenant: str, contenders: Contenders, root: Path, draws: Draws) -> Json:
    """Measure all systems and write the files."""
    knowledge_base = root / "knowledge_base.jsonl"
    dataset = read_dataset(folder, split, tenant, knowledge_base)
    with rag_service(knowledge_base, tenant, root) as url:
        systems = rewrite_all(dataset, contenders)
        queries = [query for seeds in systems.values() for rewrites in seeds for query in enumerate(rewrites.queries)]
        rankings = retrieve_all(dataset, queries, url)
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


def rewrite_all(dataset: Dataset, contenders: Contenders) -> Systems:
    rows = dataset.rows
    systems = {PLAIN: [Rewrites([row.question for row in rows])]}
    if dataset.has_history:
        systems["history"] = [Rewrites([with_history(row) for row in rows])]
    if dataset.has_needs:
        systems["people"] = [Rewrites([row.need or row.question for row in rows])]
    for name, folders in contenders.models.items():
        systems[name] = [ask_model(folder, rows, f"{name} {number}") for number, folder in enumerate(folders, 1)]
    for name, config in contenders.rewriters.items():
        systems[name] = [ask_rewriter(config, rows, name)]
    return systems


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
                row.id: rankings[query].scores
                for row, query in zip(dataset.rows, enumerate(rewrites.queries), strict=True)
            }
            file = folder / (f"{name}.{number}.json" if len(seeds) > 1 else f"{name}.json")
            with atomic_write(file) as partial:
                partial.write_bytes(orjson.dumps(run))


if __name__ == "__main__":
    try:
        main()
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)
