"""Every near-duplicate is found, none is made up, and many rows take seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.text.near_duplicates import NearDuplicateIndex, group_near_duplicates, question_key, shingles, similarity

few_signs = st.text(st.sampled_from("虾青素鱼油吃|"), max_size=25)
longer = st.text(st.sampled_from("一二三四五六七八九十"), min_size=30, max_size=90)
texts = st.one_of(few_signs, longer)


def changed(text: str, at: int) -> str:
    place = at % (len(text) + 1)
    return text[:place] + "变" + text[place + 1 :]


@st.composite
def two_sets(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Texts, and others of which some are those with a sign or two changed, taken away or added."""
    known = draw(st.lists(texts, max_size=12))
    near = [changed(changed(text, draw(st.integers(0, 90))), draw(st.integers(0, 90))) for text in known]
    shorter = [text[draw(st.integers(0, 3)) :] for text in known]
    return known, [*draw(st.lists(texts, max_size=6)), *near, *shorter, *(f"{text}变" for text in known), *known[:3]]


@pytest.mark.slow
@given(two_sets(), st.sampled_from([0.3, 0.5, 0.75, 0.8, 0.9, 0.95, 1.0]))
def test_the_search_finds_what_comparing_each_with_each_finds(
    sets: tuple[list[str], list[str]], threshold: float
) -> None:
    texts, queries = sets
    known = NearDuplicateIndex(texts, threshold)

    for other in queries:
        result = known.alike(other)
        by_hand = {text for text in texts if similarity(shingles(text), shingles(other)) >= threshold - 1e-9}
        assert set(result) == by_hand
        assert len(result) == len(by_hand)


@pytest.mark.slow
@given(st.lists(texts, max_size=12), st.sampled_from([0.5, 0.8, 0.9]))
def test_groups_are_what_alike_texts_connect(some: list[str], threshold: float) -> None:
    numbers = group_near_duplicates(some, threshold)

    for text, number in zip(some, numbers, strict=True):
        for other, its in zip(some, numbers, strict=True):
            if similarity(shingles(text), shingles(other)) >= threshold:
                assert number == its
    assert len(set(numbers)) == len({frozenset(c) for c in connected(some, threshold)})


def connected(some: list[str], threshold: float) -> list[set[str]]:
    """The groups, by walking from each text."""
    out = []
    for start in some:
        reached, left = {start}, [start]
        while left:
            pieces = shingles(left.pop())
            near = {text for text in some if similarity(pieces, shingles(text)) >= threshold} - reached
            reached |= near
            left.extend(near)
        out.append(reached)
    return out


def test_a_fragment_is_told_apart_by_its_history_and_not_by_its_dress() -> None:
    assert question_key("那它一天吃几次？", "客服已介绍：鱼油") == question_key(
        " 那它一天吃几次 ", "客服已介绍鱼油。"
    )
    known = NearDuplicateIndex([question_key("那它一天吃几次", "客服已介绍鱼油软胶囊")], 0.8)
    assert known.alike(question_key("那它一天吃几次", "客服已介绍虾青素软胶囊")) == []
