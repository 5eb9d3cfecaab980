"""augment before a real gateway: only train is augmented, retrieval decides, and a teacher that copies is stopped."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from components.data.augment.answers import check_hindsight, check_pseudo, read_pseudo
from components.data.augment.cases import (
    HindsightCase,
    Inputs,
    PseudoCase,
    _pseudo_cases,
    _Rows,
    paid_requests,
    read_cases,
    teacher_rank,
)
from components.data.augment.config import AugmentConfig
from components.data.augment.stage import TRIAL, AugmentCounts, Outputs, anchor_rows, augment
from components.data.convert.config import ConvertConfig
from components.data.convert.stage import convert
from qinglan.errors import BudgetError, DataError, RowError
from qinglan.files.files import dump_line, read_jsonl
from qinglan.rag.contract import Passage
from qinglan.rag.lexical.index import Index, build_index
from qinglan.reward.episode import TrainingPrompt
from qinglan.rows.prompt_parquet import read_prompts
from qinglan.rows.rows import QuarantinedRow, Retrieval, ValidatedRewrite
from qinglan.rows.training_rows import WITHOUT_FURTHER, ppo_row
from qinglan.text.near_duplicates import NearDuplicateIndex, question_key
from standins.teacher.app import create_app
from standins.teacher.backend import CompletionBackend
from standins.teacher.config import Behaviour
from standins.teacher.extractive_backend import load_extractive_backend
from tests.models.validated_rows import validated
from tests.servers.echo_servers import GatewayProcess, gateway_config, running
from tests.servers.scripted_rag import Rag
from tests.standins.teacher.sample_company import PRODUCTS, TERMS, write_house

CONFIG = AugmentConfig(tenant_id="fivedoctors", pseudo_calls=24, anchor_share=0.3)
NOTHING = Retrieval(query="q", hits=(), top1_score=0.0, count=0)
HELD_OUT = {"益生菌冲饮粉建议零售价": "dev", "葡萄籽硬胶囊退换货政策": "test"}
"""Passages that rows of dev and test ask for."""

Answer = Callable[[dict[str, Any]], str]


def row(n: int, product: str, term: str, question: str, **changes: Any) -> ValidatedRewrite:
    values = {
        "id": f"r{n}", "conversation_id": f"c{n}", "question": question, "gold": (f"{product}{term}",),
        "history_summary": f"用户正在了解{product}，第{n * 7919}位", "need": f"{product}{question}",
        "rewritten_query": f"{product} 说明", "rewritten": NOTHING, "plain": NOTHING, "accepted": False,
    }  # fmt: skip
    return validated(**values | changes)


def rows() -> list[ValidatedRewrite]:
    """Rows whose first rewrites find nothing, and one that each of dev and test has."""
    train = [row(n, product, "每日服用频次", "吃法是啥") for n, product in enumerate(PRODUCTS)]
    held = [
        row(90 + n, passage[:-5], passage[-5:], "在不在", split=split)
        for n, (passage, split) in enumerate(HELD_OUT.items())
    ]
    accepted = row(50, PRODUCTS[0], "贮藏条件要求", "开了放哪", accepted=True)
    return [*train, accepted, *held, row(99, PRODUCTS[1], "贮藏条件要求", "放哪好", accepted=True, split="dev")]


class Counting:
    """A brain, and what it was asked."""

    def __init__(self, brain: CompletionBackend, model: str) -> None:
        self._brain, self._model = brain, model
        self.models = ("echo",)
        self.requests: list[dict[str, Any]] = []

    def answer(self, model: str, messages: list[dict[str, Any]], response_format: Any) -> Any:
        self.requests.append(json.loads(messages[-1]["content"]))
        return self._brain.answer(self._model, messages, response_format)


class Says:
    """A brain that answers each prompt's data as the test says."""

    models = ("fivedoctors",)

    def __init__(self, says: Answer) -> None:
        self._says = says

    def answer(self, model: str, messages: list[dict[str, Any]], response_format: Any) -> Any:
        return self._says(json.loads(messages[-1]["content"]))


class World(NamedTuple):
    folder: Path
    brain: Counting
    url: str

    @property
    def inputs(self) -> Inputs:
        names = ("chats", "prompts", "test.jsonl", "kb.jsonl")
        return Inputs(*(self.folder / name for name in names))

    @property
    def outputs(self) -> Outputs:
        names = ("augmented_chats", "augmented_prompts", "left_out.jsonl", "report.json")
        return Outputs(*(self.folder / name for name in names))

    def run(self, config: AugmentConfig = CONFIG) -> AugmentCounts:
        return augment(self.inputs, self.outputs, config, self.url)

    def chats(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.outputs.augmented_chats / "train.jsonl").read_bytes().splitlines()
        return [chat for chat in map(json.loads, lines) if chat["metadata"]["kind"] == kind]

    def dropped(self) -> list[QuarantinedRow]:
        return [row for _, row in read_jsonl(self.outputs.augment_left_out, QuarantinedRow)]


def prepare(folder: Path, sheet: list[ValidatedRewrite]) -> Inputs:
    """The files that convert writes, beside a small knowledge base."""
    (folder / "validated.jsonl").write_bytes(b"".join(map(dump_line, sheet)))
    write_house(folder / "kb.jsonl")
    inputs = Inputs(*(folder / name for name in ("chats", "prompts", "test.jsonl", "kb.jsonl")))
    convert(
        folder / "validated.jsonl", inputs.chats, inputs.prompts, inputs.locked_test, folder / "unused.jsonl",
        ConvertConfig(near_duplicate=1.0),
    )  # fmt: skip
    return inputs


@contextmanager
def world(
    folder: Path, says: Answer | None = None, sheet: list[ValidatedRewrite] | None = None, **settings: Any
) -> Iterator[World]:
    inputs = prepare(folder, sheet or rows())
    brain: CompletionBackend = Says(says) if says else load_extractive_backend({"fivedoctors": inputs.knowledge_base})
    index = Index.open(build_index(inputs.knowledge_base, folder / "index", "test"))

    def answer_search(request: dict[str, Any]) -> list[dict[str, Any]]:
        hits = [index.passage(hit.number) for hit in index.search(request["rewritten_query"], 10)]
        return [{"id": hit.id, "content": hit.content, "reranker_score": 0.5, "query_score": 0.9} for hit in hits]

    counting = Counting(brain, "fivedoctors")
    with running(create_app(counting, Behaviour())) as models, running(Rag(answer_search, "s")) as rag:
        process = GatewayProcess(gateway_config(models, rag, **settings), folder)
        try:
            yield World(folder, counting, process.url())
        finally:
            process.stop()


@pytest.mark.slow
def test_the_stand_in_writes_rows_of_both_kinds_and_none_is_of_dev_or_test(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        counts = here.run()
        paid = len(here.brain.requests)
        files = {path: path.read_bytes() for path in here.outputs.augmented_chats.rglob("*.*")}
        again = here.run()

        assert counts.hindsight_kept == 7, "every training row, and none of dev and test"
        assert (counts.pseudo_asked, counts.pseudo_kept) == (24, 24)
        assert (again, len(here.brain.requests)) == (counts, paid), "what was paid for is in the journal"
        assert files == {path: path.read_bytes() for path in here.outputs.augmented_chats.rglob("*.*")}
        titles = {request["段落标题"] for request in here.brain.requests if "示例" in request}
        histories = {request["示例"]["历史摘要"] for request in here.brain.requests if "示例" in request}
    assert not titles & {f"{passage[:-5]} {passage[-5:]}" for passage in HELD_OUT}
    assert histories <= {row.history_summary for row in rows() if row.split == "train"}
    assert (here.outputs.augmented_chats / "dev.jsonl").read_bytes() == (here.inputs.chats / "dev.jsonl").read_bytes()
    for path, before in (
        ("train.jsonl", here.inputs.chats),
        ("dev.jsonl", here.inputs.chats),
        ("dev.parquet", here.inputs.prompts),
    ):
        beside = here.outputs.augmented_chats / WITHOUT_FURTHER / path
        assert beside.read_bytes() == (before / path).read_bytes(), "SFT compares with what it learned before"
    hindsight = {chat["metadata"]["id"]: chat["messages"][-1]["content"] for chat in here.chats("hindsight")}
    assert hindsight["r0"] == f"{PRODUCTS[0]} 每日服用频次"
    assert (counts.replaced, here.chats("sheet")) == (1, []), "the better rewrite stands in place of the accepted one"
    assert counts.sft_train == counts.hindsight_kept + counts.pseudo_kept
    questions = here.chats("pseudo")
    assert all(chat["metadata"]["call"] and chat["metadata"]["split"] == "train" for chat in questions)
    assert here.dropped() == []

    known = [json.loads(request.messages[-1]["content"]) for request in paid_requests(here.inputs, CONFIG)]
    texts = [sorted(json.dumps(data, ensure_ascii=False) for data in part) for part in (known, here.brain.requests)]
    assert texts[0] == texts[1], "prepay knows every request"
    train = list(read_prompts(here.outputs.augmented_prompts / "train.parquet"))
    kinds = [entry["extra_info"]["kind"] for entry in train]
    assert counts.anchors == kinds.count("pseudo") == int(0.3 / 0.7 * kinds.count("sheet")) > 0
    anchor = TrainingPrompt.model_validate(train[-1]["extra_info"])
    assert teacher_rank(anchor) == 1, "some questions from passages are prompts of PPO"
    dev = "dev.parquet"
    assert (here.outputs.augmented_prompts / dev).read_bytes() == (here.inputs.prompts / dev).read_bytes()


@pytest.mark.slow
def test_a_teacher_that_copies_the_passage_is_stopped_after_the_first_answers(tmp_path: Path) -> None:
    sheet = [*rows(), *(row(100 + n, PRODUCTS[n % 6], "退换货政策", f"咋退{n}") for n in range(40))]

    def copies(data: dict[str, Any]) -> str:
        return f"{data['相关段落']}请看说明书上的每一条内容"

    with world(tmp_path, copies, sheet) as here:
        counts = here.run(CONFIG.model_copy(update={"pseudo_calls": 0}))

    assert (counts.hindsight_asked, counts.hindsight_kept, counts.copied) == (TRIAL, 0, TRIAL)
    assert len(here.brain.requests) == TRIAL
    assert [chat["metadata"]["id"] for chat in here.chats("sheet")] == ["r50"], "SFT learns what it learned before"
    report = json.loads(here.outputs.augment_report.read_bytes())["hindsight"]
    assert report == {"answers": TRIAL, "useful": 0, "not_asked": 17, "dropped": {"copied": TRIAL}}


@pytest.mark.slow
def test_without_calls_no_request_is_sent_and_the_rows_stay_as_they_were(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        counts = here.run(AugmentConfig(hindsight_calls=0, pseudo_calls=0))

    assert (counts.sft_train, here.brain.requests) == (1, [])
    assert not (here.outputs.augmented_chats / WITHOUT_FURTHER).exists()
    for name in ("train.jsonl", "dev.jsonl"):
        assert (here.outputs.augmented_chats / name).read_bytes() == (here.inputs.chats / name).read_bytes()


@pytest.mark.slow
def test_the_budget_ends_the_stage_and_leaves_no_half_file(tmp_path: Path) -> None:
    with world(tmp_path, budget=0.003) as here, pytest.raises(BudgetError):
        here.run()

    assert not any(path.exists() for path in here.outputs)


def test_another_retrieval_than_the_rows_were_validated_with_is_refused(tmp_path: Path) -> None:
    inputs = prepare(tmp_path, rows())
    retrieval = CONFIG.retrieval.model_copy(update={"top_k": 20})

    with pytest.raises(DataError, match="was validated with retrieval"):
        read_cases(inputs, CONFIG.model_copy(update={"retrieval": retrieval}))


def test_passages_nearly_like_one_of_dev_or_test_are_left_out(tmp_path: Path) -> None:
    inputs = prepare(tmp_path, rows())

    free = read_cases(inputs, CONFIG.model_copy(update={"near_duplicate": 1.0, "pseudo_calls": 500}))
    strict = read_cases(inputs, CONFIG.model_copy(update={"near_duplicate": 0.3, "pseudo_calls": 500}))

    assert len({case.passage.id for case in free.pseudo}) == len(PRODUCTS) * len(TERMS) - 3
    assert {case.passage.id for case in strict.pseudo} < {case.passage.id for case in free.pseudo}
    assert strict.left_out["passage_like_dev_or_test"] > 0


def test_rows_beyond_the_calls_are_drawn_by_the_seed_and_counted(tmp_path: Path) -> None:
    inputs = prepare(tmp_path, rows())

    cases = [read_cases(inputs, CONFIG.model_copy(update={"hindsight_calls": 3, "seed": seed})) for seed in (1, 1, 2)]

    names = [[case.row.id for case in drawn.hindsight] for drawn in cases]
    assert len(names[0]) == 3
    assert names[0] == names[1] != names[2]
    assert cases[0].left_out["hindsight_calls"] == 4


CONTENT = "本品建议成人按标签所示频次摄入，规律摄入即可，请勿自行加量。每日2次。"
PASSAGE = Passage(id="p", title="虾青素软胶囊 每日服用频次", content=CONTENT)


def hindsight_case() -> HindsightCase:
    sheet = row(1, "虾青素软胶囊", "每日服用频次", "一天吃几次")
    prompt = TrainingPrompt.model_validate(ppo_row(sheet, "train", "s")["extra_info"])
    return HindsightCase(sheet, prompt, PASSAGE, None)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("建议成人按标签所示频次摄入，规律摄入即可", "copied"),
        ("虾青素软胶囊 每日2次", "invented_number"),
        ("{\"改写\": \"虾青素\"}", "markup"),
        ("虾青素软胶囊 说明", "same_as_before"),
    ],
)  # fmt: skip
def test_a_rewrite_that_only_the_passage_explains_is_refused(query: str, reason: str) -> None:
    with pytest.raises(RowError) as refused:
        check_hindsight(hindsight_case(), query)

    assert refused.value.reason == reason


def pseudo_case() -> PseudoCase:
    return PseudoCase("pseudo-p-0", "fivedoctors", PASSAGE, row(1, "鱼油软胶囊", "退换货政策", "能退不"), "s")


def test_rows_about_the_same_passage_of_two_tenants_have_ids_of_their_own() -> None:
    example, names = row(1, "鱼油软胶囊", "退换货政策", "能退不"), ("a", "a-b", "b")
    tenants = _Rows([], {name: [example] for name in names}, dict.fromkeys(names, "s"), {})
    cases = [case for tenant in tenants.by_tenant for case in _pseudo_cases(tenant, PASSAGE, tenants, CONFIG)]
    questions = [read_pseudo(case, written())[0] for case in cases]

    assert len({question.id for question in questions}) == 3
    assert len({question.conversation_id for question in questions}) == 3


def written(**changes: str) -> str:
    fields = {
        "历史摘要": "用户正在了解虾青素软胶囊", "原始查询": "一天吃几次", "独立问题": "虾青素软胶囊一天吃几次",
        "检索词": "虾青素软胶囊 每日服用频次",
    }  # fmt: skip
    return json.dumps(fields | changes, ensure_ascii=False)


def test_a_question_from_a_passage_takes_its_example_s_profile_and_the_passage_as_gold() -> None:
    case = pseudo_case()

    question, query = read_pseudo(case, written())

    assert (question.user_profile, question.gold, question.split) == (case.example.user_profile, ("p",), "train")
    assert query == "虾青素软胶囊 每日服用频次"


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{}", "malformed"), (written(原始查询=" "), "nothing_to_ask"), (json.dumps({"历史摘要": 1}), "malformed")],
)
def test_an_answer_without_a_question_is_no_row(text: str, reason: str) -> None:
    with pytest.raises(RowError) as refused:
        read_pseudo(pseudo_case(), text)

    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "like_dev_or_test"),
        ({"原始查询": "建议成人按标签所示频次摄入，规律摄入即可吗"}, "copied"),
        ({"历史摘要": "本品建议成人按标签所示频次摄入，规律摄入即可"}, "copied"),
        ({"检索词": "建议成人按标签所示频次摄入，规律摄入即可"}, "copied"),
    ],
)
def test_a_question_that_copies_or_repeats_the_test_is_refused(changes: dict[str, str], reason: str) -> None:
    held_out = NearDuplicateIndex([question_key("一天吃几次？", "用户正在了解虾青素软胶囊")], 0.8)

    with pytest.raises(RowError) as refused:
        check_pseudo(pseudo_case(), *read_pseudo(pseudo_case(), written(**changes)), held_out)

    assert refused.value.reason == reason


def test_the_teacher_s_rank_counts_labels_where_there_is_no_gold() -> None:
    hits = [{"id": name, "reranker_score": 0.5, "query_score": score} for name, score in (("a", 0.1), ("b", 0.9))]
    result = {"query": "q", "hits": hits, "top1_score": 0.5, "count": 1}
    labelled = validated(gold=(), labels=({"id": "a", "grade": 3}, {"id": "b", "grade": 2}), rewritten=result)
    prompt = TrainingPrompt.model_validate(ppo_row(labelled, "train", "s")["extra_info"])

    assert teacher_rank(prompt) == 1, "a is not shown: its score against the query is below production's cut"
    assert teacher_rank(prompt.model_copy(update={"labels": prompt.labels[:1]})) is None


def test_anchors_are_at_most_their_share_of_all_prompts() -> None:
    questions = [validated(id=f"q{n}") for n in range(50)]

    chosen = anchor_rows(questions, 90, CONFIG.model_copy(update={"anchor_share": 0.1}))

    assert len(chosen) == 10
    assert anchor_rows(questions, 90, CONFIG.model_copy(update={"anchor_share": 0.0})) == []
