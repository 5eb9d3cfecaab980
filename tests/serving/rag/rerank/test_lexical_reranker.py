"""The score: fitted on training conversations alone, calibrated on others, and readable."""

import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.errors import ConfigError, DataError
from qinglan.rag.lexical.index import Index, build_index
from serving.rag.engine import TantivyEngine
from serving.rag.rerank import fit
from serving.rag.rerank.fit import ScoredPassage, calibration_error, fit_from_rows, reliability
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER, Features, LexicalReranker, read_reranker

Engines = dict[tuple[str, str], TantivyEngine]
Row = dict[str, Any]


def labelled(index: Index, conversations: int) -> list[Row]:
    """Two turns a conversation, in users' words: the item is named in the need, seldom in the question."""
    rng = random.Random(0)
    rows = []
    for number in range(conversations * 2):
        passage = index.passage(rng.randrange(len(index)))
        item = passage.title.split()[0]
        ask = rng.choice(["一天吃几次", "老人能不能吃", "要不要放冰箱", "有没有副作用", passage.title.split()[1]])
        gold = [p.id for p in map(index.passage, range(len(index))) if item in p.title and ask in p.title + p.content]
        rows.append({
            "id": f"r{number}", "tenant_id": "fivedoctors", "conversation_id": f"c{number // 2}", "question": ask,
            "need": item + ask, "gold": gold, "split": "train",
        })  # fmt: skip
    return rows


def write(path: Path, rows: list[Row]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


@pytest.fixture
def index(kbs: dict[str, Path], tmp_path: Path) -> Index:
    return Index.open(build_index(kbs["fivedoctors"], tmp_path / "indexes", "fivedoctors"))


@pytest.mark.slow
def test_a_fit_separates_and_calibrates_on_conversations_it_never_saw(
    kbs: dict[str, Path], index: Index, tmp_path: Path
) -> None:
    rows = write(tmp_path / "rows.jsonl", labelled(index, 150))
    out = tmp_path / "reranker.json"

    fitted = fit_from_rows(rows, kbs["fivedoctors"], tmp_path / "indexes", "fivedoctors", out)

    report = fitted.report
    assert report is not None
    assert report.auc is not None and report.auc > 0.9
    assert report.calibration_error is not None and report.calibration_error < 0.05
    assert report.fitted_conversations + report.held_out_conversations == 150
    assert report.snapshot == index.snapshot
    assert read_reranker(out) == fitted
    assert set(orjson.loads(out.read_bytes())["weights"]) == set(Features._fields)


def test_the_same_labels_give_the_same_bytes(kbs: dict[str, Path], index: Index, tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.jsonl", labelled(index, 30))
    files = [tmp_path / "one.json", tmp_path / "two.json"]

    for out in files:
        fit_from_rows(rows, kbs["fivedoctors"], tmp_path / "indexes", "fivedoctors", out)

    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "dev"}, r"rows\.jsonl:3: row 'r2' is of split dev"),
        ({"split": None}, "is of split None"),
        ({"tenant_id": "chengla"}, "tenant chengla"),
        ({"gold": ["stranger"]}, "gold passage 'stranger' is not in the knowledge base"),
    ],
)
def test_rows_that_are_not_this_tenants_training_rows_are_refused(
    kbs: dict[str, Path], index: Index, tmp_path: Path, change: Row, message: str
) -> None:
    rows = labelled(index, 30)
    rows[2] |= change

    with pytest.raises(DataError, match=message):
        fit_from_rows(
            write(tmp_path / "rows.jsonl", rows), kbs["fivedoctors"], tmp_path / "indexes", "fivedoctors",
            tmp_path / "out.json",
        )  # fmt: skip
    assert not (tmp_path / "out.json").exists()


def test_too_few_labels_give_the_default_and_it_says_that_it_is_not_calibrated(
    kbs: dict[str, Path], index: Index, tmp_path: Path
) -> None:
    rows = write(tmp_path / "rows.jsonl", labelled(index, 3))

    fitted = fit_from_rows(rows, kbs["fivedoctors"], tmp_path / "indexes", "fivedoctors", tmp_path / "out.json")

    assert fitted == DEFAULT_RERANKER
    assert not read_reranker(tmp_path / "out.json").calibrated


def test_the_default_prefers_the_passage_that_is_asked_for(index: Index) -> None:
    scorer = LexicalReranker(index, DEFAULT_RERANKER)

    scores = scorer.scores("鱼油软胶囊每日服用频次", range(len(index)))

    assert max(range(len(index)), key=scores.__getitem__) == 10
    assert scores[10] > 0.5 > sorted(scores)[-2]


@pytest.mark.parametrize("text", ["zzzz", "。", "虾青素" * 1300, "a\x00b"])
def test_any_text_scores_any_passage_between_0_and_1(index: Index, text: str) -> None:
    assert all(0 <= score <= 1 for score in LexicalReranker(index, DEFAULT_RERANKER).scores(text, range(len(index))))


def test_a_score_depends_on_no_other_candidate(index: Index) -> None:
    scorer = LexicalReranker(index, DEFAULT_RERANKER)

    together = scorer.scores("鱼油软胶囊有没有副作用", [13, 3, 8])

    assert together == [scorer.scores("鱼油软胶囊有没有副作用", [number])[0] for number in (13, 3, 8)]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"bias": 1, "weights": {"magic": 1}}'])
def test_a_file_that_is_no_reranker_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "reranker.json").write_bytes(content)

    with pytest.raises(ConfigError, match=r"reranker\.json: no reranker"):
        read_reranker(tmp_path / "reranker.json")


def test_calibration_error_is_the_distance_between_what_is_said_and_what_is() -> None:
    def judged(score: float, *answers: bool) -> list[ScoredPassage]:
        return [ScoredPassage(score, answer) for answer in answers]

    assert calibration_error(judged(0.25, True, False, False, False)) == 0
    assert calibration_error(judged(0.95, False, False)) == 0.95
    assert calibration_error([]) is None
    [low, high] = reliability([*judged(1.0, True, True), *judged(0.25, True, False, False, False)])
    assert (low.score, low.frequency, low.pairs) == (0.25, 0.25, 4)
    assert (high.score, high.frequency, high.pairs) == (1.0, 1.0, 2)


def test_the_command_fits_and_reports_on_held_out_conversations(
    kbs: dict[str, Path],
    index: Index,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows, out = write(tmp_path / "rows.jsonl", labelled(index, 60)), tmp_path / "reranker.json"
    options = ["--rows", str(rows), "--kb", f"fivedoctors={kbs['fivedoctors']}", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["fit", *options])

    fit.main()

    report = read_reranker(out).report
    assert report
    assert f"{report.held_out_conversations} others" in capsys.readouterr().out
