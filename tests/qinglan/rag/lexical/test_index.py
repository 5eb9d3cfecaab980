"""The index: whole or not there, verified as it opens, the same answers every time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qinglan.errors import DataError
from qinglan.rag.contract import Passage
from qinglan.rag.knowledge_base import read_knowledge_base
from qinglan.rag.lexical.index import Index, build_index
from qinglan.rag.lexical.index_files import MANIFEST, PASSAGES, SEARCH
from qinglan.text.text import search_terms

PRODUCTS = ["虾青素胶囊", "胶原蛋白肽", "鱼油软胶囊", "益生菌粉"]
ASPECTS = ["每日服用频次", "适用人群范围", "贮藏温度条件", "不良反应提示"]
PASSAGES_WRITTEN = [
    Passage(id=f"p{i}{j}", title=f"{product} {aspect}", content=f"{product}的{aspect}见说明书。")
    for i, product in enumerate(PRODUCTS)
    for j, aspect in enumerate(ASPECTS)
]


def write_kb(path: Path, passages: list[Passage] = PASSAGES_WRITTEN) -> Path:
    path.write_bytes(b"".join(orjson.dumps(passage.model_dump()) + b"\n" for passage in passages))
    return path


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("index")
    return Index.open(build_index(write_kb(folder / "kb.jsonl"), folder / "indexes", "fivedoctors"))


def ids(index: Index, query: str, k: int = 5) -> list[str]:
    return [index.passage(hit.number).id for hit in index.search(query, k)]


def test_the_passage_that_holds_the_words_comes_first(index: Index) -> None:
    assert ids(index, "鱼油软胶囊 贮藏温度条件")[0] == "p22"


def test_equal_passages_stand_in_the_order_of_the_file_even_when_the_tie_is_longer_than_the_cut(
    tmp_path: Path,
) -> None:
    twins = [Passage(id=f"t{i}", content="同样的一句话。") for i in range(200)]
    index = Index.open(build_index(write_kb(tmp_path / "kb.jsonl", twins), tmp_path, "fivedoctors"))

    assert [hit.number for hit in index.search("同样的话", 7)] == list(range(7))


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(max_size=300) | st.sampled_from(["body:*", '"虾青素', "a AND (b", "^~[1 TO 2]", "虾青素" * 1500]))
def test_no_text_is_query_syntax_and_none_breaks_the_search(index: Index, query: str) -> None:
    hits = index.search(query, 5)

    assert hits == index.search(query, 5)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(0 <= hit.number < len(index) and hit.score > 0 for hit in hits)


def test_a_pasted_page_is_searched_by_its_rarest_pairs(index: Index) -> None:
    page = "".join(p.content for p in PASSAGES_WRITTEN) + "".join(chr(0x4E00 + i) for i in range(3000))

    grams = index.query_terms(page)

    assert len(grams) == len(set(grams)) <= 128
    assert index.search(page, 5)


def test_weights_on_disk_are_the_sums_of_what_the_index_counts(index: Index) -> None:
    for number in range(len(index)):
        title = set(search_terms(index.passage(number).title))
        assert index.weight(number) == pytest.approx(sum(map(index.idf, index.terms(number))))
        assert index.title_weight(number) == pytest.approx(sum(map(index.idf, title)))


def test_an_index_is_built_once_and_other_bytes_get_another_folder(tmp_path: Path) -> None:
    kb = write_kb(tmp_path / "kb.jsonl")
    first = build_index(kb, tmp_path / "indexes", "fivedoctors")
    written = (first / MANIFEST).stat().st_mtime_ns

    assert build_index(kb, tmp_path / "indexes", "fivedoctors") == first
    assert (first / MANIFEST).stat().st_mtime_ns == written
    assert build_index(write_kb(kb, PASSAGES_WRITTEN[:3]), tmp_path / "indexes", "fivedoctors") != first


def test_two_builders_at_once_end_with_one_whole_index(tmp_path: Path) -> None:
    kb = write_kb(tmp_path / "kb.jsonl")

    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: build_index(kb, tmp_path / "indexes", "fivedoctors"), range(4)))

    assert [path.name for path in (tmp_path / "indexes/fivedoctors/default").iterdir()] == [folders.pop().name]
    assert not folders


def test_a_knowledge_base_that_cannot_be_read_leaves_nothing_behind(tmp_path: Path) -> None:
    kb = write_kb(tmp_path / "kb.jsonl")
    kb.write_bytes(kb.read_bytes() + b'{"id": "broken"')

    with pytest.raises(DataError, match=r"kb\.jsonl:17"):
        build_index(kb, tmp_path / "indexes", "fivedoctors")

    assert list((tmp_path / "indexes/fivedoctors/default").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id":"a","content":"x"}\n{"id":"a","content":"y"}\n', r":2: id 'a' is used in line 1"),
        ('{"id":"é","content":"x"}\n{"id":"e\u0301","content":"y"}\n'.encode(), r":2: id '.+' is used in line 1"),
        (b'{"id":"a","content":"x"}\n{"id":"a\\u200b","content":"y"}\n', r":2: id 'a\\u200b': its text, or letters"),
        (b'{"id":"\\u202ea","content":"x"}\n', r":1: id '\\u202ea': .*invisible"),
        (b'{"id":"a","content":" \\n"}\n', r":1: id 'a': its text, .*invisible"),
        (b'{"id":"a","content":"\\u200b\\ufeff"}\n', r":1: id 'a': its text, .*invisible"),
        (b'{"id":"a","content":"x"}\n{"id":', r":2:"),
        (b'{"id":"a"}\n', r":1: content: Field required"),
        ('{"id":"a","content":"胶原"}'.encode("gb18030"), r":1: .*not UTF-8"),
        (b"\n\n", "holds no passage"),
    ],
)
def test_a_wrong_knowledge_base_is_refused_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "kb.jsonl").write_bytes(content)

    with pytest.raises(DataError, match=message):
        list(read_knowledge_base(tmp_path / "kb.jsonl"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def alter(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, alter, Path.unlink])
@pytest.mark.parametrize("victim", [MANIFEST, PASSAGES, f"{SEARCH}/meta.json", f"{SEARCH}/*.idx", f"{SEARCH}/*.term"])
def test_a_damaged_index_refuses_to_open_and_says_how_to_rebuild(
    tmp_path: Path, damage: Callable[[Path], None], victim: str
) -> None:
    kb = write_kb(tmp_path / "kb.jsonl")
    folder = build_index(kb, tmp_path, "fivedoctors")
    damage(next(folder.glob(victim)))

    with pytest.raises(DataError, match="Delete the folder and build it again"):
        Index.open(folder)
    with pytest.raises(DataError, match="Delete the folder"):
        build_index(kb, tmp_path, "fivedoctors")
