"""Conversations stay together, the test stays locked, and the same input gives the same bytes."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.data.convert.component import convert as convert_step
from components.data.convert.config import ConvertConfig
from components.data.convert.split_rows import SplitInput, assign_splits, conversation_splits, left_out_for_balance
from components.data.convert.stage import convert
from qinglan.errors import ConfigError, DataError
from qinglan.files.files import dump_line, sha256_bytes
from qinglan.lineage.signing.signed_statement import read_lineage
from qinglan.lineage.trace.student_prompts import prompt_faults
from qinglan.prompts import student_messages
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.labels import JudgedPassage, RowLabels
from qinglan.rows.rows import ValidatedRewrite
from qinglan.rows.splits import split_of
from tests.models.validated_rows import validated
from tests.releases.kfp_artifacts import File
from tests.releases.registered_release import use_keys

CONFIG = ConvertConfig()
TOPICS = ["虾青素", "鱼油", "益生菌", "叶黄素", "褪黑素", "姜黄素", "蔓越莓", "燕窝", "氨糖", "烟酰胺"]
ASKS = ["一天吃几次", "饭前吃还是饭后吃", "孕妇能用吗", "要放冰箱吗", "能放多久", "多少钱一盒"]


def row(n: int, **changes: Any) -> ValidatedRewrite:
    """Rows that no check of likeness takes for one another, each a conversation of its own."""
    fields: dict[str, Any] = {
        "id": f"r{n}", "conversation_id": f"c{n}", "call": f"call-{n}",
        "question": f"{ASKS[n % len(ASKS)]}{n * 7919}",
        "history_summary": f"用户咨询{TOPICS[n % len(TOPICS)]}{n * 104729}", "gold": (), "split": None,
    }  # fmt: skip
    return validated(**fields | changes)


def write(path: Path, rows: Iterable[ValidatedRewrite]) -> Path:
    path.write_bytes(b"".join(map(dump_line, rows)))
    return path


def run(
    tmp_path: Path, rows: Iterable[ValidatedRewrite], config: ConvertConfig = CONFIG, out: str = "out",
    labels: Path | None = None,
) -> Any:  # fmt: skip
    folder = tmp_path / out
    counts = convert(
        write(tmp_path / "in.jsonl", rows), folder / "sft", folder / "ppo", folder / "test.jsonl",
        folder / "left_out.jsonl", config, labels,
    ).counts  # fmt: skip
    return folder, counts


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_row_is_somewhere(tmp_path: Path) -> None:
    rows = [row(n, accepted=n % 3 > 0, reason="" if n % 3 else "below") for n in range(200)]

    folder, counts = run(tmp_path, rows)

    assert counts.rows == 200
    assert (
        counts.ppo_train + counts.ppo_dev + counts.test + counts.near_duplicates + counts.left_out_for_balance == 200
    )
    assert counts.ppo_train > counts.sft_train > 80
    assert len(read(folder / "sft/train.jsonl")) == counts.sft_train
    assert len(pandas.read_parquet(folder / "ppo/train.parquet")) == counts.ppo_train
    assert len(read(folder / "test.jsonl")) == counts.test


def test_turns_of_one_conversation_share_a_split(tmp_path: Path) -> None:
    folder, _ = run(tmp_path, [row(n, conversation_id=f"c{n % 40}") for n in range(200)])

    homes: dict[str, set[str]] = {}
    for name in ("train", "dev"):
        for info in pandas.read_parquet(folder / f"ppo/{name}.parquet")["extra_info"]:
            homes.setdefault(info["conversation_id"], set()).add(name)
    for locked in read(folder / "test.jsonl"):
        homes.setdefault(locked["conversation_id"], set()).add("test")

    assert len(homes) == 40
    assert {len(splits) for splits in homes.values()} == {1}


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    rows = [row(n) for n in range(60)]
    first_run, _ = run(tmp_path, rows, out="one")
    two, _ = run(tmp_path, rows, out="two")

    files = [p.relative_to(first_run) for p in sorted(first_run.rglob("*")) if p.is_file()]

    assert len(files) == 6
    assert all((first_run / f).read_bytes() == (two / f).read_bytes() for f in files)


def test_rejected_rows_are_not_learned_but_competed_for(tmp_path: Path) -> None:
    rows = [row(n, split="train", accepted=n > 0, reason="" if n else "nothing found") for n in range(3)]

    folder, counts = run(tmp_path, rows)

    assert [chat["metadata"]["id"] for chat in read(folder / "sft/train.jsonl")] == ["r1", "r2"]
    assert counts.ppo_train == 3


def test_an_sft_row_is_the_serving_prompt_and_the_teachers_answer(tmp_path: Path) -> None:
    source = row(1, split="train")
    folder, _ = run(tmp_path, [source])

    [chat] = read(folder / "sft/train.jsonl")

    assert chat["messages"] == [*student_messages(source), {"role": "assistant", "content": "虾青素 每日服用频次"}]


def test_a_ppo_row_asks_for_nothing_again(tmp_path: Path) -> None:
    source = row(1, split="train", gold=("k1",))
    folder, _ = run(tmp_path, [source])

    line = pandas.read_parquet(folder / "ppo/train.parquet").iloc[0]
    extra = line["extra_info"]

    assert [dict(m) for m in line["prompt"]] == student_messages(source)
    assert line["reward_model"]["ground_truth"] == source.need
    assert extra["teacher_rewrite"] == source.rewritten_query
    assert extra["teacher_retrieval"]["hits"][0] == {"id": "k1", "reranker_score": 0.5, "query_score": None}
    assert extra["plain_retrieval"]["top1_score"] == 0.5
    assert extra["retrieved_with"] == RetrievalConfig().model_dump()
    assert list(extra["gold"]) == ["k1"]


def test_a_split_without_rows_is_an_empty_file_of_the_same_shape(tmp_path: Path) -> None:
    folder, _ = run(tmp_path, [row(n, split="train") for n in range(3)])

    train, dev = (pandas.read_parquet(folder / f"ppo/{name}.parquet") for name in ("train", "dev"))

    assert len(dev) == 0
    assert list(dev.columns) == list(train.columns)


@pytest.mark.parametrize(
    ("question", "history"),
    [
        ("那它一天要吃几次啊", "欢迎光临本店。本店支持七天无理由退换。用户咨询虾青素软胶囊"),
        ("那它一天要吃几次啊", ""),
        ("那它一天要吃幾次啊", "用戶咨詢蝦青素軟膠囊"),
        ("请问那它每天要服用多少次呢", "用户咨询虾青素软胶囊"),
        ("虾青素软胶囊的保质期说明在哪里看", "用户咨询深海鱼油咀嚼片"),
    ],
)
def test_a_row_that_tells_the_history_of_a_test_row_otherwise_is_not_learned(
    question: str, history: str, tmp_path: Path
) -> None:
    locked = row(1, split="test", question="那它一天要吃几次啊", history_summary="用户咨询虾青素软胶囊")
    shelf_life_question = "虾青素软胶囊的保质期说明在哪里看"
    shelf = {"question": shelf_life_question, "need": shelf_life_question}
    complete = row(2, split="test", history_summary="用户咨询虾青素软胶囊", **shelf)
    other = row(3, split="train", question="那它一天要吃几次啊", history_summary="用户咨询深海鱼油咀嚼片")
    retold = row(4, split="train", question=question, history_summary=history)

    folder, counts = run(tmp_path, [locked, complete, other, retold])

    assert (counts.near_duplicates, counts.test) == (1, 2)
    assert [chat["metadata"]["id"] for chat in read(folder / "sft/train.jsonl")] == ["r3"]
    [left_out] = read(folder / "left_out.jsonl")
    assert left_out["id"] == "r4" and "alike to row r" in left_out["detail"]


def test_rows_that_are_left_out_for_balance_are_listed_with_the_figures(tmp_path: Path) -> None:
    small = [row(n, tenant_id="chengla", split="train") for n in range(2)]
    large = [row(n, split="train") for n in range(10, 30)]

    folder, counts = run(tmp_path, [*small, *large], ConvertConfig(tenant_ratio=3.0))

    left_out = read(folder / "left_out.jsonl")
    assert (counts.ppo_train, counts.left_out_for_balance, len(left_out)) == (8, 14, 14)
    assert {line["reason"] for line in left_out} == {"balance"}
    assert left_out[0]["detail"] == "fivedoctors has 20 training rows, chengla 2: at most 3 times as many"
    learned = {chat["metadata"]["id"] for chat in read(folder / "sft/train.jsonl")}
    assert not learned & {line["id"] for line in left_out}


def test_the_answer_for_a_conversation_never_depends_on_the_others() -> None:
    alone = split_of(("fivedoctors", "c7"), CONFIG)
    rows = [SplitInput(n, f"r{n}", ("fivedoctors", f"c{n}"), None, f"文本{n * 7919}") for n in range(50)]

    assert assign_splits(rows, CONFIG)[7].split == alone


def test_another_seed_gives_another_split() -> None:
    first, second = ([split_of(("t", f"c{n}"), ConvertConfig(seed=seed)) for n in range(50)] for seed in (1, 2))

    assert first != second


def test_the_shares_are_those_asked_for() -> None:
    splits = [split_of(("t", f"c{n}"), ConvertConfig(train=0.7, dev=0.2)) for n in range(4000)]

    assert abs(splits.count("train") / 4000 - 0.7) < 0.03
    assert abs(splits.count("test") / 4000 - 0.1) < 0.02


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30).map(str)), min_size=1, max_size=200))
def test_no_tenant_outweighs_the_smallest(training: list[tuple[str, str]]) -> None:
    out = left_out_for_balance(training, ratio=2.0, seed=1)
    same_side = [conversation for conversation in training if conversation not in out]

    rows = {tenant: sum(c[0] == tenant for c in training) for tenant, _ in training}
    left = {tenant: sum(c[0] == tenant for c in same_side) for tenant in rows}

    assert all(left[tenant] <= 2 * min(rows.values()) for tenant in rows)
    assert all(left[tenant] == rows[tenant] for tenant in rows if rows[tenant] == min(rows.values()))


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_particle_more_makes_no_other_task_and_another_history_does(tmp_path: Path, split: str) -> None:
    history = "客服已介绍虾青素软胶囊，已解答防伪溯源查询"
    held = row(1, split=split, question="那它一天吃几次", history_summary=history)
    alike = row(2, split="train", question="请问那它一天吃几次", history_summary=history)
    other = row(3, split="train", question="那它一天吃几次", history_summary="客服已介绍深海鱼油咀嚼片")

    folder, counts = run(tmp_path, [alike, held, other])

    assert (counts.near_duplicates, counts.ppo_train) == (1, 1)
    assert [chat["metadata"]["id"] for chat in read(folder / "sft/train.jsonl")] == ["r3"]
    [left_out] = read(folder / "left_out.jsonl")
    assert (left_out["id"], left_out["reason"]) == ("r2", "near_duplicate")
    assert left_out["detail"].endswith(f"alike to row r1 of the {split} split")


@pytest.mark.parametrize(
    ("accepted", "named"), [(True, "2 accepted rows nearly repeat"), (False, "quality_threshold")]
)
def test_near_duplicates_are_named_where_they_leave_nothing_to_learn(
    tmp_path: Path, accepted: bool, named: str
) -> None:
    reason = "" if accepted else "nothing found"
    same = {"question": "帐篷怎么洗", "history_summary": ""}
    alike = [row(n, split="train", accepted=accepted, reason=reason, **same) for n in (1, 2)]

    with pytest.raises(DataError, match=f"of 3 rows none .*{named}"):
        run(tmp_path, [row(3, split="test", **same), *alike])
    assert not (tmp_path / "out/sft/train.jsonl").exists()


def test_a_conversation_in_two_splits_is_an_error(tmp_path: Path) -> None:
    rows = [row(1, conversation_id="c", split="train"), row(2, conversation_id="c", split="test")]

    with pytest.raises(DataError, match="row 2: conversation 'c' is in 'train' and in 'test'"):
        run(tmp_path, rows)


def labelled(row: ValidatedRewrite, *grades: tuple[str, int]) -> RowLabels:
    judged = tuple(JudgedPassage(id=passage, grade=grade) for passage, grade in grades)
    result = any(grade >= 2 for _, grade in grades)
    outcome = "relevant" if result else "nothing relevant"
    return RowLabels(id=row.id, tenant_id=row.tenant_id, judged=judged, outcome=outcome, calls=1)


def test_labels_decide_what_is_accepted_and_which_rows_can_be_rewarded(tmp_path: Path) -> None:
    good, bad, lost, silent = (row(n, split="train", accepted=n != 1) for n in range(4))
    gold = row(4, split="train", gold=("k1",))
    locked, dev = row(5, split="test"), row(6, split="dev")
    labels = tmp_path / "labels.jsonl"
    judged = [
        labelled(good, ("k1", 3)), labelled(bad, ("k1", 2)), labelled(lost, ("k1", 1)),
        labelled(gold, ("k1", 0)), labelled(locked, ("k1", 0)), labelled(dev, ("k1", 1), ("k2", 3)),
    ]  # fmt: skip
    labels.write_bytes(b"".join(map(dump_line, judged)))

    folder, counts = run(tmp_path, [good, bad, lost, silent, gold, locked, dev], labels=labels)

    prompts = {info["id"]: info for info in pandas.read_parquet(folder / "ppo/train.parquet")["extra_info"]}
    assert set(prompts) == {"r0", "r1", "r3", "r4"}, "where nothing relevant was found nothing can be rewarded"
    assert [dict(label) for label in prompts["r0"]["labels"]] == [{"id": "k1", "grade": 3}]
    assert (list(prompts["r4"]["labels"]), list(prompts["r3"]["labels"])) == ([], []), "gold wins over labels"
    assert {chat["metadata"]["id"] for chat in read(folder / "sft/train.jsonl")} == {"r0", "r1", "r3", "r4"}
    [left_out] = read(folder / "left_out.jsonl")
    assert (left_out["id"], left_out["reason"]) == ("r2", "nothing_relevant")
    assert "nothing relevant among 1 judged passages" in left_out["detail"]
    [test] = read(folder / "test.jsonl")
    assert test["labels"] == [{"id": "k1", "grade": 0}], "the test stays whole"
    [tested] = pandas.read_parquet(folder / "ppo/dev.parquet")["extra_info"]
    assert not tested["accepted"], "its first passage is labelled 1"
    assert (counts.nothing_relevant, counts.ppo_train, counts.sft_train) == (1, 4, 4)


FOLDED = ConvertConfig(folds=3)


def ids(path: Path) -> set[str]:
    return {info["id"] for info in pandas.read_parquet(path)["extra_info"]}


def test_each_conversation_is_the_test_of_one_fold_and_learned_from_in_the_others(tmp_path: Path) -> None:
    rows = [row(n, conversation_id=f"c{n % 30}") for n in range(90)]
    tested: list[str] = []
    for fold in (1, 2, 3):
        config = FOLDED.model_copy(update={"fold": fold})
        folder, _ = run(tmp_path, rows, config, f"fold-{fold}")
        held_out = [line["id"] for line in read(folder / "test.jsonl")]
        learned = ids(folder / "ppo/train.parquet") | ids(folder / "ppo/dev.parquet")
        assert ids(folder / "ppo/dev.parquet") and len(held_out) == 30
        assert learned | set(held_out) == {row.id for row in rows} and not learned & set(held_out)
        tested += held_out

    assert sorted(tested) == sorted(row.id for row in rows)


def test_the_released_model_of_a_folded_sheet_learns_from_all_rows(tmp_path: Path) -> None:
    rows = [row(n, split="train" if n == 0 else None) for n in range(30)]

    folder, counts = run(tmp_path, rows, FOLDED)

    train, dev = (ids(folder / f"ppo/{name}.parquet") for name in ("train", "dev"))
    assert (counts.test, len(train | dev)) == (0, 30)
    assert dev and "r0" in train, "what the sheet marks stays as it is"


@pytest.mark.parametrize("split", ["train", "dev"])
def test_folds_of_which_one_could_not_be_trained_are_refused_before_any_is(split: str, tmp_path: Path) -> None:
    """Its SFT would fail after the trainings of the released model and of the folds before it, all paid."""
    rows = [row(n) for n in range(30)]
    inputs = [
        SplitInput(n, line.id, (line.tenant_id, line.conversation_id), None, line.question)
        for n, line in enumerate(rows)
    ]
    second = conversation_splits(inputs, FOLDED.model_copy(update={"fold": 2}))
    poor = [
        line.model_copy(
            update={"accepted": second[line.tenant_id, line.conversation_id] != split, "reason": "nothing found"}
        )
        for line in rows
    ]

    with pytest.raises(DataError, match=rf"in fold 2 of 3 no row of {split} is accepted.*Nothing is trained yet"):
        run(tmp_path, poor, FOLDED)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("settings", [{"folds": 1}, {"folds": 3, "fold": 4}, {"fold": 1}, {"train": 0.9, "dev": 0.2}])
def test_folds_and_shares_that_make_no_splits_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ConvertConfig.parse(settings, "convert")


@pytest.mark.parametrize("prompt", ["", "你是户外用品店的助手。", {"chengla": "你是助教。"}])
def test_the_step_names_the_prompt_that_each_tenants_rows_show(
    prompt: str | dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit compares a release's card with them."""
    use_keys(tmp_path / "keys", monkeypatch)
    tenants = ("chengla", "fivedoctors")
    source = write(tmp_path / "validated", [row(n, tenant_id=tenants[n % 2]) for n in range(60)])
    write(tmp_path / "labels", [])
    outputs = ("chats", "prompts", "locked_test", "left_out", "convert_metrics", "lineage")
    (tmp_path / "before").mkdir()
    files = {name: File(str(tmp_path / name)) for name in ("before", "labels", *outputs)}
    monkeypatch.setattr("components.step_figures.log_figures", lambda *args: None)

    convert_step.python_func(validated=File(str(source)), config={"system_prompt": prompt}, **files)

    [entry] = read_lineage(Path(files["lineage"].path))
    named = {part.name: part.digest for part in entry.statement.used if part.name.startswith("prompt")}
    shown = {
        chat["metadata"]["tenant_id"]: chat["messages"][0]["content"]
        for chat in read(Path(files["chats"].path) / "train.jsonl")
    }
    assert set(shown) == set(tenants)
    assert named == {f"prompt student.{tenant}": sha256_bytes(text.encode()) for tenant, text in shown.items()}
    assert not list(prompt_faults(shown, entry.statement.made[0].digest, [entry.statement]))
