"""`qinglan headroom`: the dev rows of a run, the run's own search service, and a table that ends in advice."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from commands.headroom.cli import report_lines
from commands.headroom.report import headroom_report
from commands.run.gains import gain_lines, measured_cost
from components.data.convert.config import ConvertConfig
from components.data.convert.stage import convert
from components.evaluation.rewriter import sample_rewrites
from components.evaluation.rewriter.sample_rewrites import SampledRewrites
from pipelines.execute.execution import run_lock
from pipelines.execute.rundir import RunDir, write_json
from pipelines.lines.config import dump_config, load_config
from qinglan.config import load_yaml
from qinglan.errors import DataError
from qinglan.evaluation.headroom import ALL
from qinglan.evaluation.stage_gain import StageGain, write_gain
from qinglan.files.files import dump_line, sha256_file
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Hit, Question, Retrieval
from standins.samples import write_sample
from tests.commands.conftest import Here
from tests.models.tiny_rewriter import tiny_model
from tests.models.validated_rows import validated

MISS = Retrieval(query="x", hits=(Hit(id="other", reranker_score=0.2),), top1_score=0.2, count=1)
K = 4


class World(NamedTuple):
    run: RunDir
    best_queries: dict[str, str]
    """By row: the item and the house term, which find the gold passage first."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A run as far as convert; the teacher finds the gold passage of every second row."""
    root = tmp_path_factory.mktemp("world")
    data, run = root / "data", RunDir(root / "run")
    write_sample("fivedoctors", data, conversations=64, seed=5)
    slices = {row["id"]: row for row in map(orjson.loads, (data / "slices.jsonl").read_bytes().splitlines())}
    questions = [
        row for row in read_questions(data / "questions.xlsx", Columns(), "fivedoctors") if isinstance(row, Question)
    ]
    rows, snapshot = [], sha256_file(data / "knowledge_base.jsonl")
    for number, row in enumerate(questions):
        hit = Retrieval(
            query="x", hits=(Hit(id=row.gold[0], reranker_score=0.9),), top1_score=0.9, count=1, gold_rank=1
        )
        rows.append(
            validated(
                id=row.id, conversation_id=row.conversation_id, question=row.question, gold=row.gold, split=row.split,
                history_summary=row.history_summary, need=row.question, rewritten_query=f"{row.question} {number}",
                snapshot=snapshot, retrieved_with=RetrievalConfig(score_threshold=0.0), plain=MISS,
                rewritten=hit if number % 2 else MISS,
            )
        )  # fmt: skip
    run.files.mkdir(parents=True)
    run.shown("validated").write_bytes(b"".join(map(dump_line, rows)))
    convert(
        run.shown("validated"), run.shown("chats"), run.shown("prompts"), run.shown("locked_test"),
        run.shown("left_out"), ConvertConfig(),
    )  # fmt: skip
    files = {"questions": data / "questions.xlsx", "knowledge_base": data / "knowledge_base.jsonl"}
    config = load_config("fivedoctors", "demo", **files, evaluate={"slices": data / "slices.jsonl"})
    dump_config(config, run.config)
    return World(run, {key: f"{row['item']} {row['aspect']}" for key, row in slices.items()})


@pytest.fixture
def trained(world: World, forks: None) -> World:
    if not world.run.shown("sft_model").exists():
        tiny_model(world.run.shown("sft_model"))
    return world


Writer = Callable[[str], tuple[str, list[str]]]


@pytest.fixture
def scripted(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[Writer], None]:
    """Put rewrites of the test's into the model's place: the search is real."""

    def script(write: Writer) -> None:
        def answer(model: Path, prompts: list[list[dict[str, str]]], *_: object) -> SampledRewrites:
            texts = [write(best_query_of(world, prompt[-1]["content"])) for prompt in prompts]
            return SampledRewrites([greedy for greedy, _ in texts], [samples for _, samples in texts], 1.0)

        monkeypatch.setattr(sample_rewrites, "sample_rewrites", answer)

    return script


def best_query_of(world: World, prompt: str) -> str:
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(world.run.shown("prompts") / "dev.parquet").to_pylist()
    [row] = {row["extra_info"]["id"] for row in rows if row["prompt"][-1]["content"] == prompt}
    return world.best_queries[row]


@pytest.mark.slow
def test_without_an_sft_model_validations_retrievals_stand_in_and_nothing_is_asked(world: World) -> None:
    report = headroom_report(world.run, K, most_rows=10_000)

    headroom = report.by_kind[ALL]
    assert report.samples == 0
    assert 0.3 < headroom.teacher.value < 0.7
    assert headroom.greedy == headroom.teacher
    assert {"gap", "complete", "house words"} <= set(report.by_kind)
    assert "--until sft" in report.decision.sentence
    assert not world.run.journal.exists()


@pytest.mark.slow
def test_samples_that_find_more_than_greedy_are_worth_trying(
    trained: World, scripted: Callable[[Writer], None]
) -> None:
    scripted(lambda best: ("完全无关", ["完全无关", best, "", "完全无关"]))

    report = headroom_report(trained.run, K, most_rows=10_000)

    headroom = report.by_kind[ALL]
    assert headroom.greedy.value == 0.0
    assert headroom.best.value > 0.95  # the order by score puts another passage before one row's
    assert headroom.sampled.value == pytest.approx(0.25, abs=0.02)
    assert report.decision.word == "worth trying"
    [ppo] = [recipe for recipe in report.recipes if recipe.name == "ppo"]
    assert ppo.gain == headroom.gain


@pytest.mark.slow
def test_samples_that_find_no_more_than_greedy_are_not_worth_it(
    trained: World, scripted: Callable[[Writer], None]
) -> None:
    scripted(lambda best: (best, [best, "完全无关", best, ""]))

    report = headroom_report(trained.run, K, most_rows=30)

    assert report.by_kind[ALL].gain.value == 0.0
    assert report.by_kind[ALL].rows < 40
    assert report.decision.word == "not worth it"
    assert report.as_json()["decision"]["word"] == "not worth it"
    lines = list(report_lines(report))
    assert any(line.startswith("gap") for line in lines)
    assert any(line.startswith("ppo: ") and "time not known" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("under_way", [False, True])
def test_the_command_samples_the_runs_own_model_also_while_the_run_is_under_way(
    trained: World, here: Here, under_way: bool
) -> None:
    with run_lock(trained.run) if under_way else nullcontext():
        ended = here("headroom", trained.run.root, "--samples", 2, "--rows", 12, "--json")

    answer = orjson.loads(ended.out)
    assert ended.code == 0, ended.errors
    assert answer["samples"] == 2
    assert answer["by_kind"][ALL]["greedy"]["value"] == 0.0, "it has learned nothing"
    assert answer["decision"]["word"] == "not worth it"


def test_a_stage_that_ran_is_priced_by_its_own_seconds(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.records.mkdir()
    times = {"started": "2026-11-25T10:00:00+00:00", "ended": "2026-11-25T10:01:30.500+00:00"}
    write_json(run.records / "sft.json", {"status": "done", **times})
    write_json(run.records / "ppo.json", {"status": "failed", **times})

    assert measured_cost(run, "sft") == (90.5, None, "measured")
    assert measured_cost(run, "ppo") is None


def test_a_run_says_what_further_rows_and_ppo_gained_on_dev_and_what_was_left_out(tmp_path: Path) -> None:
    run, config = RunDir(tmp_path), load_config("fivedoctors", "demo")
    assert gain_lines(run, config) == []
    run.records.mkdir()
    for folder in ("sft_log", "ppo_log"):
        run.shown(folder).mkdir(parents=True)
    gain = StageGain(rows=512, measure="right passage first", before=0.9, after=0.875, taken=False)
    write_gain(run.shown("sft_log"), gain)
    write_gain(run.shown("ppo_log"), gain.model_copy(update={"measure": "mean reward", "taken": True}))

    lines = gain_lines(run, config)

    assert lines[1:] == ["augment: it gained -2.5 points on dev and is left out"]


@pytest.mark.slow
def test_a_run_that_was_moved_with_its_data_is_read_by_its_links(trained: World, tmp_path: Path, here: Here) -> None:
    settings = load_yaml(trained.run.config)
    copy = RunDir(tmp_path / "copy")
    shutil.copytree(trained.run.root, copy.root)
    for name in ("questions", "knowledge_base"):
        copy.shown(name).symlink_to(settings[name])
    before = {name: f"/before/{Path(settings[name]).name}" for name in ("questions", "knowledge_base")}
    copy.config.write_bytes(orjson.dumps(settings | before))

    ended = here("headroom", copy.root, "--samples", 2, "--rows", 8, "--json")

    assert ended.code == 0, ended.errors


def test_rows_without_gold_or_labels_cannot_be_measured(world: World, tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.files.mkdir(parents=True)
    rows = [validated(id=f"r{at}", conversation_id=f"c{at}", split=split, gold=(), question=f"问{at}")
            for at, split in enumerate(("train", "dev"))]  # fmt: skip
    run.shown("validated").write_bytes(b"".join(map(dump_line, rows)))
    convert(
        run.shown("validated"), run.shown("chats"), run.shown("prompts"), run.shown("locked_test"),
        run.shown("left_out"), ConvertConfig(),
    )  # fmt: skip
    run.config.write_bytes(world.run.config.read_bytes())

    with pytest.raises(DataError, match="gold"):
        headroom_report(run, K, 100)
