"""The function that verl calls: every term of every rollout; an outage stops the training and is never a score."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from qinglan.errors import BudgetError, DataError, OutageError
from qinglan.rag.contract import RagRequest
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.reward.config import RewardConfig, StyleRewardConfig
from qinglan.reward.impute import DEFAULT_SCORE, in_sample
from qinglan.reward.outage import clear_outage, read_outage
from qinglan.reward.reward_function import compute_score, compute_scores
from qinglan.reward.summary import read_rollouts, summarise_rollouts
from qinglan.style.labels import format_training_text
from tests.qinglan.reward.conftest import GOOD, NEED, QUESTION, TEACHER, House, Services, extra_info
from tests.servers.echo_servers import Reply, Scripted, running

pytestmark = pytest.mark.slow

ALL = RewardConfig(judge_share=1.0, control_pair_share=0.0)


def rewarded(*texts: str, **changes: Any) -> Callable[[str], Any]:
    """The terms of each text in turn, on one row."""

    async def work(settings: str) -> list[dict[str, float]]:
        return [
            await compute_score("qinglan/fivedoctors", text, NEED, extra_info(**changes), settings=settings)
            for text in texts
        ]

    return work


def test_a_rewrite_that_finds_the_gold_passage_first_beats_a_teacher_that_finds_it_second(house: House) -> None:
    [terms] = house.run(ALL, rewarded(GOOD))

    assert (terms["win"], terms["gold"], terms["gold_teacher"]) == (1.0, 1.0, 0.0)
    assert (terms["judge"], terms["judge_teacher"], terms["judged"]) == (0.9, 0.8, 1.0)
    assert terms["score"] == pytest.approx(sum(value for name, value in terms.items() if name.startswith("part_")))
    assert terms["score"] > 0.4


def test_a_rewrites_style_is_asked_about_with_the_rows_own_question(house: House) -> None:
    style = Scripted(Reply(200, orjson.dumps({"probabilities": {"诚实": 0.7}})))

    with running(style) as url:
        config = RewardConfig(
            judge_share=0.0, control_pair_share=0.0, style=StyleRewardConfig(url=url, weight=0.1, wanted=("诚实",))
        )
        [terms] = house.run(config, rewarded(GOOD))

    assert [orjson.loads(body) for _, body, _ in style.requests] == [{"text": format_training_text(QUESTION, GOOD)}]
    assert (terms["style"], terms["part_style"]) == (0.7, pytest.approx(0.07))


@pytest.mark.parametrize("mode", ["seed_v1", "anchored_v2"])
def test_every_rollout_has_the_same_keys_and_finite_floats(house: House, mode: Any) -> None:
    texts = [GOOD, TEACHER, "", "  \n", "第一行\n第二行", "查不到的话", '{"改写": "x"}', "好" * 2000]

    result = house.run(RewardConfig(mode=mode, judge_share=1.0, control_pair_share=1.0), rewarded(*texts))

    assert len({tuple(terms) for terms in result}) == 1
    assert {type(value) for terms in result for value in terms.values()} == {float}
    anchored = mode == "anchored_v2"
    assert [terms["floor"] for terms in result] == [
        float(anchored and no_rewrite) for no_rewrite in (0, 0, 1, 1, 1, 0, 1, 1)
    ]


def test_rewards_of_a_step_do_not_hang_on_whose_answer_came_first(house: House, services: Services) -> None:
    """Half of the prompts are judged; what is imputed for the others is learned from these, in whatever order."""
    texts = [GOOD, TEACHER, "虾青素", "每日服用频次 虾青素软胶囊 说明", "一天吃几次"] * 8

    def step(settings: str) -> Any:
        rows = [extra_info(id=f"r{at}", conversation_id=f"c{at}") for at in range(len(texts))]
        samples = [
            {"data_source": "qinglan/fivedoctors", "solution_str": text, "ground_truth": NEED, "extra_info": row}
            for row, text in zip(rows, texts, strict=True)
        ]
        return compute_scores(samples, settings)

    half = RewardConfig(judge_share=0.5, control_pair_share=0.0)
    services.delay = lambda text: len(text) / 200
    first = house.run(half, step)
    services.delay = lambda text: (20 - len(text)) / 200
    (house.folder / "journal.sqlite").unlink()
    (house.folder / "retrievals.sqlite").unlink()
    assert house.run(half, step) == first
    assert 0 < sum(terms["judged"] for terms in first) < len(texts)


def test_an_imputed_score_learns_from_the_judged_rows_of_the_whole_step(house: House) -> None:
    """The first row is not judged, the others are: its score is theirs, and not the guess before the first answer."""
    half = RewardConfig(judge_share=0.5, control_pair_share=0.0)
    ids = [f"r{at}" for at in range(40)]
    judged = [id for id in ids if in_sample(id, 0.5, half.seed, "judge")]
    [first, *_] = (id for id in ids if id not in judged)

    def step(settings: str) -> Any:
        return compute_scores(
            [
                {"data_source": "qinglan/fivedoctors", "solution_str": GOOD, "ground_truth": NEED,
                 "extra_info": extra_info(id=id, conversation_id=id)}
                for id in (first, *judged)
            ],
            settings,
        )  # fmt: skip

    imputed, *_ = house.run(half, step)
    assert imputed["judged"] == 0.0
    assert imputed["judge"] != DEFAULT_SCORE


def test_the_mark_that_ends_a_turn_is_no_part_of_the_rewrite(house: House) -> None:
    plain, marked = house.run(ALL, rewarded(GOOD, GOOD + "<|im_end|>\n"))

    assert marked == plain


def test_a_text_that_is_no_rewrite_is_neither_searched_nor_judged(house: House, services: Services) -> None:
    house.run(ALL, rewarded("", "<think>嗯</think>虾青素"))

    assert (services.retrieved, services.judged) == ([], [])


def test_a_rewrite_is_searched_as_validation_searched_teacher_and_question(house: House, services: Services) -> None:
    house.run(ALL, rewarded(GOOD))

    [request] = services.retrieved
    assert RagRequest.model_validate(request) == RetrievalConfig().request(QUESTION, GOOD, NEED, "fivedoctors")


def test_teacher_and_question_stand_as_the_row_brings_them(house: House) -> None:
    first = {"hits": [{"id": "gold", "reranker_score": 0.7, "query_score": None}], "query": TEACHER}
    row = extra_info()["teacher_retrieval"] | first

    [terms] = house.run(ALL, rewarded(GOOD, teacher_retrieval=row))

    assert (terms["gold_teacher"], terms["top1_teacher"], terms["win"]) == (1.0, 0.7, 0.0)


@pytest.mark.parametrize(("mode", "first"), [("seed_v1", 0.8), ("anchored_v2", 0.9)])
def test_the_plans_mode_goes_by_scores_against_the_rewrite_itself(house: House, mode: Any, first: float) -> None:
    [terms] = house.run(RewardConfig(mode=mode), rewarded(GOOD))

    assert (terms["top1"], terms["top1_teacher"]) == (first, first)


def test_scores_of_another_reranker_than_the_rows_are_refused(house: House, services: Services) -> None:
    services.reranker = "q" * 64

    with pytest.raises(DataError, match=r"reranker qqqqqq.*validated on rrrrrr"):
        house.run(ALL, rewarded(GOOD))


def test_retrievals_scored_against_another_need_are_refused(house: House) -> None:
    with pytest.raises(DataError, match=r"ground_truth is not the need.*Convert the validated rows again"):
        house.run(ALL, rewarded(GOOD, need="别的需求"))


@pytest.mark.parametrize(("config", "split"), [(RewardConfig(judge_share=0.0), "train"), (ALL, "dev")])
def test_a_prompt_of_dev_or_outside_the_sample_is_imputed_and_flagged(
    house: House, services: Services, config: RewardConfig, split: str
) -> None:
    [terms] = house.run(config, rewarded(GOOD, split=split))

    assert services.judged == []
    assert (terms["judged"], terms["judge"], terms["part_judge"]) == (0.0, DEFAULT_SCORE, 0.0)


@pytest.mark.parametrize("judgement", ["不是JSON", {"综合得分": 9}, {"评分理由": "没有分数"}, {"综合得分": True}])
def test_a_judgement_that_cannot_be_used_is_imputed_and_flagged(
    house: House, services: Services, judgement: Any
) -> None:
    services.judgement = lambda _: judgement

    [terms] = house.run(ALL, rewarded(GOOD))

    assert (terms["judged"], terms["judge_failed"], terms["judge"]) == (0.0, 1.0, DEFAULT_SCORE)


def test_a_judge_that_prefers_nonsense_fails_its_control_pair(house: House, services: Services) -> None:
    services.judgement = lambda rewrite: {"综合得分": 3.0}

    [terms] = house.run(RewardConfig(judge_share=1.0, control_pair_share=1.0), rewarded(GOOD))

    assert (terms["control_pair"], terms["control_pair_failed"]) == (1.0, 1.0)


def test_a_rag_that_is_away_is_an_outage_written_down_and_never_a_score(house: House, services: Services) -> None:
    services.rag_status = 503

    with pytest.raises(OutageError):
        house.run(ALL, rewarded(GOOD))

    left = read_outage(house.folder)
    assert isinstance(left, OutageError)
    assert list(read_rollouts(house.folder)) == []


def test_after_an_outage_nobody_is_asked_until_it_is_cleared(house: House, services: Services) -> None:
    services.rag_status = 503
    with pytest.raises(OutageError):
        house.run(ALL, rewarded(GOOD))
    services.rag_status, before = 200, len(services.retrieved)

    with pytest.raises(OutageError):
        house.run(ALL, rewarded(GOOD))
    assert len(services.retrieved) == before

    clear_outage(house.folder)
    assert house.run(ALL, rewarded(GOOD))[0]["gold"] == 1.0


def test_a_judge_that_is_away_is_an_outage_once_that_is_sure(house: House, services: Services) -> None:
    """How many rollouts come before it depends on which of two equal calls lands first."""
    services.judge_status = 500
    texts = [f"{GOOD} {number}" for number in range(8)]

    with pytest.raises(OutageError):
        house.run(ALL, rewarded(*texts), limits={"outage_after": 3})

    written = [line["judge_failed"] for line in read_rollouts(house.folder)]
    assert 1 <= len(written) < len(texts)
    assert set(written) == {1.0}


def test_a_spent_budget_stops_the_training_with_its_own_error(house: House) -> None:
    with pytest.raises(BudgetError):
        house.run(ALL, rewarded(GOOD), budget=1e-9)

    assert isinstance(read_outage(house.folder), BudgetError)


def test_another_knowledge_base_than_the_rows_is_refused(house: House, services: Services) -> None:
    services.snapshot = "t" * 64

    with pytest.raises(DataError, match=r"knowledge base tttttt.*validated on ssssss"):
        house.run(ALL, rewarded(GOOD))


def test_a_row_without_what_the_reward_needs_is_an_error_that_names_it(house: House) -> None:
    with pytest.raises(DataError, match=r"teacher_rewrite.*Validate and convert again"):
        house.run(ALL, rewarded(GOOD, teacher_rewrite=None))

    assert isinstance(read_outage(house.folder), DataError)


def test_an_auditor_finds_every_rollout_with_every_term(house: House) -> None:
    returned = house.run(ALL, rewarded(GOOD, TEACHER))

    written = list(read_rollouts(house.folder))
    assert [(line["id"], line["rewrite"]) for line in written] == [("r1", GOOD), ("r1", TEACHER)]
    assert [{name: line[name] for name in terms} for line, terms in zip(written, returned, strict=True)] == returned
    assert summarise_rollouts(written)["win_rate"] == 0.5


def test_a_line_that_a_kill_cut_short_is_left_out(house: House) -> None:
    house.run(ALL, rewarded(GOOD))
    [path] = house.folder.glob("rollouts-*.jsonl")
    with path.open("ab") as file:
        file.write(orjson.dumps({"id": "r2"})[:5])

    assert [line["id"] for line in read_rollouts(house.folder)] == ["r1"]
