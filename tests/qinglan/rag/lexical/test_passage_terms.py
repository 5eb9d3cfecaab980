"""Pairs cut a batch at a time are those that are cut one text at a time."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.rag.contract import Passage
from qinglan.rag.knowledge_base import inverse_frequency, searched_text
from qinglan.rag.lexical import passage_terms
from qinglan.rag.lexical.passage_terms import DocumentFrequencies, extract_terms, passage_batches
from qinglan.text.text import search_terms

TEXT = st.text(max_size=40) | st.text(alphabet="虾青素αΣσİ_0xs ，\n\ud83d", max_size=12)
BATCH = st.lists(st.tuples(TEXT, TEXT.filter(len)), min_size=1, max_size=6).map(
    lambda texts: [Passage.model_construct(id=str(n), title=t, content=c) for n, (t, c) in enumerate(texts)]
)


@pytest.mark.slow
@given(BATCH)
def test_a_batch_is_cut_as_each_text_alone(batch: list[Passage]) -> None:
    cut = extract_terms(batch)

    assert [body.split() for body in cut.bodies] == [search_terms(searched_text(passage)) for passage in batch]
    assert cut.counts.tolist() == [len(set(search_terms(searched_text(passage)))) for passage in batch]


@pytest.mark.slow
@given(BATCH, BATCH)
def test_passages_weigh_the_idf_of_their_distinct_pairs_whatever_the_batches(
    first: list[Passage], second: list[Passage]
) -> None:
    whole = [*first, *second]
    df = Counter(pair for passage in whole for pair in set(search_terms(searched_text(passage))))
    frequencies, cuts = DocumentFrequencies(), [extract_terms(first), extract_terms(second)]
    for cut in cuts:
        frequencies.add(cut)
    weigh = frequencies.weigher(lambda count: inverse_frequency(count, len(whole)))

    result = [row for cut in cuts for row in weigh(cut.codes, cut.in_title, cut.counts).tolist()]

    def weight(text: str) -> float:
        return math.fsum(inverse_frequency(df[pair], len(whole)) for pair in set(search_terms(text)))

    expected = [[weight(searched_text(passage)), weight(passage.title)] for passage in whole]
    assert result == [pytest.approx(row) for row in expected]


def test_many_merges_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_terms, "MERGED_AT", 3)
    batch = [Passage(id=str(n), content=f"第{n % 7}号产品每日{n}粒") for n in range(50)]
    often, once = DocumentFrequencies(), DocumentFrequencies()
    for passage in batch:
        often.add(extract_terms([passage]))
    once.add(extract_terms(batch))

    cut = extract_terms(batch)

    result, expected = (
        frequencies.weigher(float)(cut.codes, cut.in_title, cut.counts).tolist() for frequencies in (often, once)
    )
    assert result == expected


def test_a_batch_ends_with_its_passages_or_with_its_letters() -> None:
    short = (Passage(id=str(n), content="短") for n in range(passage_terms.PASSAGES_AT_ONCE + 1))
    long = (Passage(id=str(n), content="长" * (passage_terms.LETTERS_AT_ONCE // 2)) for n in range(3))

    assert [len(batch) for batch in passage_batches(short)] == [passage_terms.PASSAGES_AT_ONCE, 1]
    assert [len(batch) for batch in passage_batches(long)] == [2, 1]
