"""The teacher's further rows: a second model learns without them, and a real gateway and search decide on dev."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from components.training.sft import further_rows, stage
from components.training.sft.config import COMPARED_ROWS, SftConfig
from components.training.sft.further_rows import compare, read_dev_rows, stage_gain
from components.training.sft.stage import SftCounts, Trained, sft
from qinglan.errors import DataError, TrainingError
from qinglan.evaluation.stage_gain import StageGain, read_gain
from qinglan.files.files import sha256_file
from qinglan.jobs import LocalRunner
from qinglan.rewriter.card import FURTHER_ROWS, RewriterCard, read_card, write_card
from qinglan.rows.prompt_parquet import ParquetRows
from qinglan.rows.training_rows import WITHOUT_FURTHER, ppo_row
from tests.components.evaluation.rewriter.sample_evaluation import WordRag, gateway, locked_rows, write_knowledge_base
from tests.models.tiny_rewriter import tiny_model
from tests.models.training_rows import chats
from tests.processes.forked_runs import forks_variables
from tests.processes.forkserver import MODELS, socket_path

CONFIG = SftConfig(device="cpu", tuner="full")
COUNTS = SftCounts(
    rows=1, dev_rows=1, steps=1, eval_loss=0.1, token_accuracy=0.9, like_teacher=0.5, trimmed=0, reused=0
)


class World(NamedTuple):
    url: str
    chats: Path
    good: list[str]
    """Texts that find the right passage of each dev row first."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    knowledge_base = write_knowledge_base(folder / "kb.jsonl")
    rows = locked_rows(sha256_file(knowledge_base))
    further = with_further_rows(folder / "further", rows)
    with gateway(folder, knowledge_base, WordRag(knowledge_base)) as url:
        yield World(url, further, [row.gold[0].replace("/", " ") for row in rows])


def with_further_rows(folder: Path, dev: list[Any]) -> Path:
    """Nine rows, of which one is a further one, and the dev rows that decide."""
    without = chats(folder / WITHOUT_FURTHER, train=8)
    write_dev(without, dev)
    return chats(folder, train=9)


def write_dev(folder: Path, rows: list[Any]) -> None:
    with ParquetRows(folder / "dev.parquet") as file:
        for row in rows:
            file.add(ppo_row(row, "dev"))


@pytest.fixture
def trained(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Models that were trained already, and what each writes, by the folder of its rows; the search is real."""
    texts: dict[str, list[str]] = {}

    def train(base: Path, rows: Path, *_: object) -> Trained:
        work = tmp_path / "work" / rows.name
        (work / "log").mkdir(parents=True)
        (work / "model").mkdir()
        write_card(work / "model", RewriterCard(stage="sft", parents={"train": sha256_file(rows / "train.jsonl")}))
        unusable = "的的的" if rows.name in texts.get("unusable", ()) else None
        count = len((rows / "train.jsonl").read_bytes().splitlines())
        return Trained(work, COUNTS._replace(rows=count), unusable)

    def write(settings: dict[str, Any]) -> dict[str, list[list[str]]]:
        return {"rewrites": [texts[Path(model).parent.name] for model in settings["models"]]}

    monkeypatch.setattr(stage, "train_student", train)
    monkeypatch.setattr(further_rows, "write_rewrites", write)
    return texts


def train(world: World, out: Path, rows: Path, config: SftConfig = CONFIG) -> SftCounts:
    return sft(out / "base", rows, out / "model", out / "log", config, gateway_url=world.url)


def test_further_rows_that_gain_on_dev_are_learned_from(
    world: World, trained: dict[str, list[str]], tmp_path: Path
) -> None:
    trained |= {"further": world.good, WITHOUT_FURTHER: ["完全无关", *world.good[1:]]}

    counts = train(world, tmp_path, world.chats)

    assert (counts.rows, counts.compared, counts.unproved) == (9, 12, 0)
    assert (counts.dev_without, counts.dev_with) == pytest.approx((11 / 12, 1.0))
    gain = read_gain(tmp_path / "log")
    assert gain and gain.taken and gain.gain == pytest.approx(1 / 12) and gain.interval
    assert read_card(tmp_path / "model").left_out is None


def test_further_rows_with_which_less_is_found_are_left_out_and_the_card_says_so(
    world: World, trained: dict[str, list[str]], tmp_path: Path
) -> None:
    trained |= {"further": ["", *world.good[1:]], WITHOUT_FURTHER: world.good}

    counts = train(world, tmp_path, world.chats)

    assert (counts.rows, counts.dev_without) == (8, 1.0)
    card, gain = read_card(tmp_path / "model"), read_gain(tmp_path / "log")
    assert card.left_out == (FURTHER_ROWS,)
    assert card.parents["train"] == sha256_file(world.chats / WITHOUT_FURTHER / "train.jsonl")
    assert gain and not gain.taken


@pytest.mark.parametrize("passage_found", [True, False])
@pytest.mark.parametrize(
    ("unusable", "rows", "left_out"), [("further", 8, (FURTHER_ROWS,)), (WITHOUT_FURTHER, 9, None)]
)
def test_a_model_that_answers_nothing_usable_loses_to_the_other_whatever_it_finds(
    world: World,
    trained: dict[str, list[str]],
    tmp_path: Path,
    unusable: str,
    rows: int,
    left_out: tuple[str, ...] | None,
    passage_found: bool,
) -> None:
    """Rewrites that never end can find all; where nobody finds anything it is a tie."""
    texts = world.good if passage_found else ["完全无关"] * len(world.good)
    trained |= {"further": texts, WITHOUT_FURTHER: texts, "unusable": [unusable]}

    assert train(world, tmp_path, world.chats).rows == rows
    assert read_card(tmp_path / "model").left_out == left_out


def test_models_that_both_answer_nothing_are_handed_on_to_nobody(
    world: World, trained: dict[str, list[str]], tmp_path: Path
) -> None:
    trained |= {"further": world.good, WITHOUT_FURTHER: world.good, "unusable": ["further", WITHOUT_FURTHER]}

    with pytest.raises(TrainingError, match=r"answers nothing usable, such as '的的的'\. Look at the loss curve"):
        train(world, tmp_path, world.chats)
    assert not (tmp_path / "model").exists()


def test_rows_without_a_known_passage_cannot_decide_and_only_one_model_is_trained(
    world: World, trained: dict[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row.model_copy(update={"gold": ()}) for row in locked_rows("snapshot")]
    trained["further"] = world.good

    counts = train(world, tmp_path, with_further_rows(tmp_path / "further", rows))

    assert (counts.rows, counts.compared, counts.dev_with, counts.unproved) == (9, 0, None, 1)
    assert "used unproved" in capsys.readouterr().out
    assert read_gain(tmp_path / "log") is None and not (tmp_path / "work" / WITHOUT_FURTHER).exists()


@pytest.mark.parametrize("further", [True, False])
def test_without_a_comparison_or_without_further_rows_one_model_is_trained(
    world: World, trained: dict[str, list[str]], tmp_path: Path, further: bool
) -> None:
    rows = world.chats if further else chats(tmp_path / "rows")

    counts = train(world, tmp_path, rows, CONFIG.model_copy(update={"compare_further_rows": not further}))

    assert (counts.compared, counts.dev_with, counts.unproved) == (0, None, int(further))


def test_a_knowledge_base_that_is_not_the_validated_one_ends_the_comparison(
    world: World, trained: dict[str, list[str]], tmp_path: Path
) -> None:
    trained |= {"further": world.good, WITHOUT_FURTHER: world.good}
    rows = with_further_rows(tmp_path / "further", locked_rows("f" * 64))

    with pytest.raises(DataError, match=r"answers from knowledge base .* validated on ffff"):
        train(world, tmp_path, rows)


@pytest.mark.slow
def test_of_many_dev_rows_the_seed_draws_some_of_those_that_can_decide(tmp_path: Path) -> None:
    first, *rest = locked_rows("snapshot")
    rows = [first.model_copy(update={"id": f"r{at}", "conversation_id": f"c{at}"}) for at in range(COMPARED_ROWS + 8)]
    write_dev(tmp_path, [*rows, *(row.model_copy(update={"gold": ()}) for row in rest)])
    drawn = functools.partial(read_dev_rows, tmp_path / "dev.parquet")

    ids = [row.prompt.id for row in drawn(seed=1)]

    assert len(set(ids)) == COMPARED_ROWS and set(ids) < {row.id for row in rows}
    assert ids == [row.prompt.id for row in drawn(seed=1)] != [row.prompt.id for row in drawn(seed=2)]


class Elsewhere(LocalRunner):
    """Jobs of its own on this machine, as a cluster's are elsewhere."""

    remote = True


@pytest.mark.slow
def test_models_that_need_a_job_are_asked_where_they_were_trained(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in forks_variables({further_rows.__name__: socket_path(MODELS)}).items():
        monkeypatch.setenv(name, value)
    model = tiny_model(tmp_path / "work" / "model")
    (tmp_path / "work" / "log").mkdir()
    rows = read_dev_rows(world.chats / WITHOUT_FURTHER / "dev.parquet", seed=0)

    gain = compare(model.parent, model.parent, rows, CONFIG, Elsewhere(), world.url)

    written = orjson.loads((tmp_path / "work" / "further_rows-answer.json").read_bytes())["answer"]["rewrites"]
    assert len(written) == 2 and written[0] == written[1] and len(written[0]) == len(rows) == gain.rows
    assert gain.gain == 0 and gain.unrewritten is not None and 0 <= gain.unrewritten <= 1
    assert (tmp_path / "work" / "log" / "further_rows.log").is_file()


def test_a_tie_keeps_the_rows_that_are_paid_for() -> None:
    assert stage_gain([[1.0, 1.0]], [("t", "c")], seed=0).taken
    assert not stage_gain([[1.0, 1.0], [1.0, 0.0]], [("t", "c"), ("t", "d")], seed=0).taken


def test_a_single_conversation_has_no_interval() -> None:
    gain = stage_gain([[0.0, 1.0], [1.0, 1.0]], [("t", "c"), ("t", "c")], seed=0)

    assert gain == StageGain(rows=2, measure="right passage first", before=0.5, after=1.0, taken=True)
