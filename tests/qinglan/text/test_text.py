"""Text in any language is cut into the same terms by the index, the reranker and the checks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.text.text import is_pair, search_terms, stem, whole_terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("虾青素，每日一粒", ["虾青", "青素", "每日", "日一", "一粒"]),
        ("维生素B12 胶囊", ["维生", "生素", "素b", "胶囊", "b12"]),
        ("维生素B族", ["维生", "生素", "素b", "b族"]),
        ("Vitamin B12 Capsules, vitamin C", ["c", "vitamin", "b12", "capsule", "vitamin"]),
        ("Где купить Café?", ["где", "купить", "café"]),
        ("鱼", ["鱼"]),
        ("", []),
    ],
)
def test_a_text_is_cut_by_the_script_of_each_run(text: str, terms: list[str]) -> None:
    assert search_terms(text) == terms


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("capsules", "capsule"), ("companies", "company"), ("boxes", "box"), ("dishes", "dish"),
        ("class", "class"), ("virus", "virus"), ("gas", "gas"), ("shoes", "shoes"), ("cafés", "cafés"),
    ],
)  # fmt: skip
def test_a_plural_is_the_term_of_its_singular(word: str, expected: str) -> None:
    assert stem(word) == expected


@given(st.text(max_size=40) | st.text(alphabet="虾青素aBs0_ ，", max_size=20))
def test_terms_that_are_no_pairs_are_the_whole_terms(text: str) -> None:
    terms = set(search_terms(text))

    assert {term for term in terms if not is_pair(term)} == whole_terms(text.lower())
    assert all(term in text.lower() for term in terms if is_pair(term))
