"""Both engines over the same knowledge bases: how far their ranks agree, and that their scores are the same."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import mean
from typing import NamedTuple, TypeVar

import pytest

from benchmarks.samples import dev_cases
from qinglan.rag.contract import Passage
from qinglan.rag.knowledge_base import read_knowledge_base
from qinglan.rag.lexical.index import Index, build_index
from serving.rag.engine import Candidate, Engine, TantivyEngine
from serving.rag.opensearch.cluster_client import ClusterClient
from serving.rag.opensearch.engine import AliasEngine
from serving.rag.opensearch_connection import OpenSearchConfig
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER
from standins.samples import TENANTS, write_sample
from standins.samples.sample_writer import KNOWLEDGE_BASE
from tests.cluster.search.opensearch import Node
from tests.cluster.search.search_world import load_now, write_kb

CONVERSATIONS, SEED = 300, 100
K = 20
EVERY = 3
"""Number of dev questions: enough to tell engines apart that rank otherwise."""
Result = TypeVar("Result")


class Agreement(NamedTuple):
    """Over many queries that find something."""

    first: float
    """How often both find the same passage first."""

    of_ten: float
    """Count how many of the ten best are among the other's ten best."""

    top1: tuple[float, float]
    """How often the gold passage is first: tantivy, OpenSearch."""


@pytest.fixture(scope="module")
def samples(search: Node, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("samples")
    for tenant in TENANTS:
        write_sample(tenant, root / tenant, CONVERSATIONS, SEED)
        load_now(search, root / tenant / KNOWLEDGE_BASE, tenant)
    return {tenant: root / tenant for tenant in TENANTS}


def local(kb: Path, tenant: str) -> TantivyEngine:
    return TantivyEngine(Index.open(build_index(kb, kb.parent / "index", tenant)), DEFAULT_RERANKER)


def on_both(
    search: Node, kb: Path, tenant: str, do: Callable[[TantivyEngine, Engine], Awaitable[Result]]
) -> Result:  # fmt: skip
    async def run() -> Result:
        cluster = ClusterClient(OpenSearchConfig(url=search.url, deadline_seconds=30))
        try:
            return await do(
                local(kb, tenant), await AliasEngine(cluster, tenant, "default", DEFAULT_RERANKER).current()
            )
        finally:
            await cluster.aclose()

    return asyncio.run(run())


def queries(folder: Path, tenant: str) -> dict[str, list[tuple[str, frozenset[str]]]]:
    """Dev questions as they are, with their history, and as a perfect rewrite would ask."""
    titles = {passage.id: passage.title for passage in read_knowledge_base(folder / KNOWLEDGE_BASE)}
    questions = [case.question for case in dev_cases(folder, tenant)][::EVERY]
    texts: dict[str, Callable[..., str]] = {
        "plain": lambda row: row.question,
        "history and question": lambda row: f"{row.history_summary} {row.question}",
        "the gold title": lambda row: titles[min(row.gold)],
    }
    return {name: [(text(row), frozenset(row.gold)) for row in questions] for name, text in texts.items()}


async def agreement(tantivy: Engine, opensearch: Engine, questions: list[tuple[str, frozenset[str]]]) -> Agreement:
    first, shared, golds = [], [], []
    for text, gold in questions:
        here, opensearch_hits = await tantivy.search(text, K), await opensearch.search(text, K)
        if not here:
            assert not opensearch_hits
            continue
        first.append(here[0].number == opensearch_hits[0].number)
        ten, other = {hit.number for hit in here[:10]}, {hit.number for hit in opensearch_hits[:10]}
        shared.append(len(ten & other) / len(ten))
        golds.append((here[0].passage.id in gold, opensearch_hits[0].passage.id in gold))
    return Agreement(
        mean(first), mean(shared), (mean(is_gold for is_gold, _ in golds), mean(is_gold for _, is_gold in golds))
    )


# Both engines search the same terms; only ties at the cut may fall otherwise.
ALIKE = 0.99
TOP1 = 0.01


@pytest.mark.parametrize("tenant", TENANTS)
def test_both_engines_rank_alike(tenant: str, search: Node, samples: dict[str, Path]) -> None:
    async def compare(tantivy: TantivyEngine, opensearch: Engine) -> dict[str, Agreement]:
        questions = queries(samples[tenant], tenant)
        return {name: await agreement(tantivy, opensearch, texts) for name, texts in questions.items()}

    result = on_both(search, samples[tenant] / KNOWLEDGE_BASE, tenant, compare)

    for name, agreement_of_queries in result.items():
        print(f"{tenant}, {name}: {agreement_of_queries}")
        assert min(agreement_of_queries.first, agreement_of_queries.of_ten) >= ALIKE, (name, agreement_of_queries)
        assert abs(agreement_of_queries.top1[0] - agreement_of_queries.top1[1]) <= TOP1, (name, agreement_of_queries)


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_passage_has_the_same_score_on_both(tenant: str, search: Node, samples: dict[str, Path]) -> None:
    """So that a reranker that was fitted on the local index is calibrated on OpenSearch too."""

    async def farthest(tantivy: TantivyEngine, opensearch: Engine) -> float:
        distances: list[float] = []
        for text, _ in queries(samples[tenant], tenant)["history and question"]:
            result = await tantivy.search(text, K)
            scored = [await engine.rerank(text, result) for engine in (tantivy, opensearch)]
            pairs = zip(*scored, strict=True)
            distances += [abs(first - other) for first, other in pairs]
        assert len(distances) > 1000
        return max(distances)

    assert on_both(search, samples[tenant] / KNOWLEDGE_BASE, tenant, farthest) < 1e-4


def found_by(search: Node, kb: Path, tenant: str, *texts: str, k: int = K) -> list[list[Candidate]]:
    async def find(_: TantivyEngine, opensearch: Engine) -> list[list[Candidate]]:
        return [await opensearch.search(text, k) for text in texts]

    return on_both(search, kb, tenant, find)


def test_equals_stand_in_the_order_of_the_file(search: Node, tmp_path: Path) -> None:
    same = [Passage(id=f"p{number}", title="虾青素", content="每日一粒") for number in range(600)]
    kb = write_kb(tmp_path / "kb.jsonl", same)
    load_now(search, kb, "equals")

    (result,) = found_by(search, kb, "equals", "虾青素一天几粒")

    assert [candidate.number for candidate in result] == list(range(K))
    assert result[7].passage == same[7]


def test_a_question_is_never_read_as_a_query(search: Node, samples: dict[str, Path]) -> None:
    tenant, plain = "fivedoctors", "虾青素软胶囊 每日服用频次"
    wild = '虾青素软胶囊 每日服用频次" AND (*:* OR /.*/ -虾 +胶囊 ~2 {"match_all": {}} \\'
    kb = samples[tenant] / KNOWLEDGE_BASE

    expected, result, nothing = found_by(search, kb, tenant, plain, wild, '*:* ?? ~~ /.*/ ()"\\')

    assert result[0].passage == expected[0].passage
    assert nothing == []


def test_a_pasted_page_is_searched_like_a_long_question(search: Node, samples: dict[str, Path]) -> None:
    tenant = "fivedoctors"
    kb = samples[tenant] / KNOWLEDGE_BASE
    page = "".join(passage.content for passage in read_knowledge_base(kb))[:4000]

    (result,) = found_by(search, kb, tenant, page)

    assert len(result) == K
