"""A tokenizer.json holds known parts only, and its work grows with the text only."""

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import DataError
from qinglan.models.model_files import refuse_disallowed_files
from qinglan.models.references import refuse_foreign_files
from qinglan.models.tokenizer_parts import tokenizer_fault
from tests.registered_release import tiny_weights
from tests.tiny_rewriter import tiny_model

Part = dict[str, Any]


def replace(pattern: Part, content: str) -> Part:
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(pattern: Part) -> Part:
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def sequence(inner: str, *parts: Part) -> Part:
    return {"type": "Sequence", inner: list(parts)}


def charsmap(*texts: bytes) -> Part:
    table = (4).to_bytes(4, "little") + bytes(4) + b"\0".join(texts) + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def template(single: list[Part], special: Part | None = None) -> Part:
    return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": special or {}}


TEXT: Part = {"Sequence": {"id": "A", "type_id": 0}}
END: Part = {"SpecialToken": {"id": "</s>", "type_id": 0}}
BPE: Part = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
DOUBLE = replace({"String": "a"}, "aa")
MANY_IDS = {"</s>": {"id": "</s>", "ids": [1] * 200_000, "tokens": ["x"]}}
MANY_TOKENS = {str(number): {"id": "x", "ids": [1], "tokens": ["x"]} for number in range(99)}

WITHOUT_BOUND: list[tuple[str, Any, str]] = [
    ("normalizer", sequence("normalizers", *[DOUBLE] * 26), "26 parts"),
    ("normalizer", sequence("normalizers", *[DOUBLE] * 9), "by a longer one"),
    ("normalizer", replace({"String": "a"}, "aaaaaaaa"), "by a longer one"),
    ("normalizer", replace({"String": ""}, "a"), "by a longer one"),
    ("normalizer", replace({"String": ""}, ""), "by a longer one"),
    ("normalizer", replace({"Regex": "(a+)+$"}, ""), "unknown regular expression"),
    ("normalizer", replace({"Regex": ""}, "x"), "unknown regular expression"),
    ("normalizer", replace({"Regex": r"\s+"}, "x" * 1000), "unknown regular expression"),
    ("normalizer", {"type": "Prepend", "prepend": "x" * 1000}, "prepends a long text"),
    ("normalizer", charsmap(b"a", b"x" * 10**6), "one character a long text"),
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "!"}, "no table of characters"),
    ("normalizer", sequence("normalizers", sequence("normalizers", {"type": "NFC"})), "type 'Sequence'"),
    ("normalizer", {"type": "Custom"}, "type 'Custom'"),
    ("normalizer", {"type": ["NFC"]}, "no tokenizer"),
    ("normalizer", [], "no tokenizer"),
    ("pre_tokenizer", split({"Regex": "(a|a)*b"}), "no supported model"),
    ("pre_tokenizer", split({"Regex": r"(?=(\w+))\1:"}), "no supported model"),
    ("pre_tokenizer", split({"String": ""}), "empty text"),
    ("pre_tokenizer", {"type": "UnicodeScripts"}, "type 'UnicodeScripts'"),
    ("pre_tokenizer", {"type": "Metaspace", "replacement": "▁▁▁"}, "several characters"),
    ("pre_tokenizer", sequence("pretokenizers", *[{"type": "Digits"}] * 17), "17 parts"),
    ("post_processor", template([TEXT, *[END] * 200_000]), "200,001 pieces"),
    ("post_processor", template([TEXT, END], MANY_IDS), "tokens around"),
    ("post_processor", template([TEXT], MANY_TOKENS), "99 tokens"),
    ("post_processor", template([TEXT] * 16), "each text once"),
    ("post_processor", sequence("processors", *[template([TEXT, *[END] * 15])] * 40), "40 parts"),
    ("post_processor", {"type": "Custom"}, "type 'Custom'"),
    ("decoder", DOUBLE, "by a longer one"),
    ("decoder", {"type": "CTC"}, "type 'CTC'"),
    ("model", {"type": "WordLevel", "vocab": {}, "unk_token": "x"}, "type 'WordLevel'"),
    ("model", {**BPE, "dropout": 0.5}, "dropout"),
    ("model", {**BPE, "vocab": {"a" * 5_000: 0}}, "a token of 5,000"),
    ("model", {**BPE, "merges": None}, "no tokenizer"),
    ("model", {"type": "WordPiece", "vocab": {}, "max_input_chars_per_word": 10**9}, "words of 1,000,000,000"),
    ("model", {"type": "Unigram", "vocab": [["a" * 5_000, 0.0]]}, "a token of 5,000"),
    ("model", 1, "no tokenizer"),
    ("added_tokens", [{"id": number, "content": str(number)} for number in range(10_001)], "10,001 added tokens"),
    ("added_tokens", [{"id": 1, "content": "x" * 5_000}], "a token of 5,000"),
    ("added_tokens", [{"id": 1}], "no tokenizer"),
    ("truncation", {"max_length": 2, "stride": 1, "strategy": "LongestFirst"}, "stride"),
    ("padding", {"strategy": {"Fixed": 10**9}, "pad_id": 0}, "a length of its own"),
    ("padding", {"strategy": "BatchLongest", "pad_to_multiple_of": 10**9}, "a length of its own"),
    ("plugin", {"type": "x"}, "no supported model has"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "part", "why"), WITHOUT_BOUND, ids=range(len(WITHOUT_BOUND)))
def test_a_tokenizer_whose_work_has_no_bound_is_refused_when_it_is_signed_and_when_it_is_loaded(
    tmp_path: Path, key: str, part: Any, why: str
) -> None:
    folder = tiny_weights(tmp_path / "model")
    (folder / "tokenizer.json").write_text(json.dumps({"model": BPE, key: part}), encoding="utf-8")

    for refuse in (refuse_disallowed_files, refuse_foreign_files):
        with pytest.raises(DataError, match=rf"tokenizer\.json.*{why}"):
            refuse(folder)


@pytest.mark.parametrize("contents", [[], "x", None, 1, {"model": []}, {"normalizer": {}}])
def test_other_json_is_no_tokenizer(contents: Any) -> None:
    assert tokenizer_fault(contents).startswith("no tokenizer")


CLASSES = [
    "Qwen2Tokenizer", "Qwen3_5Tokenizer", "LlamaTokenizer", "GemmaTokenizer", "GPT2Tokenizer", "RobertaTokenizer",
    "BertTokenizer", "XLMRobertaTokenizer", "AlbertTokenizer", "DebertaV2Tokenizer", "T5Tokenizer",
    "CamembertTokenizer",
]  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_the_parts_of_public_models_are_taken(name: str) -> None:
    """transformers builds them by itself; only their words are missing."""
    import transformers

    tokenizer = getattr(transformers, name)()

    assert tokenizer_fault(json.loads(tokenizer.backend_tokenizer.to_str())) == ""


LLAMA3 = split({"Regex": (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)})  # fmt: skip
REAL: dict[str, Part] = {
    "our own tiny model": {},
    "XLM-R": {"normalizer": sequence("normalizers", {"type": "NFKC"}, charsmap("صلى الله".encode(), b"x"))},
    "Llama 3": {"pre_tokenizer": sequence("pretokenizers", LLAMA3, {"type": "ByteLevel"})},
    "SmolLM2": {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits"}, {"type": "ByteLevel"})},
    "BERT": {"post_processor": template([END, TEXT, END])},
    "Llama 3's end": {"post_processor": sequence("processors", {"type": "ByteLevel"}, template([END, TEXT]))},
    "Llama 2": {"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
                                       replace({"String": " "}, "▁"))},
    "bge": {"padding": {"strategy": "BatchLongest", "pad_id": 0}, "truncation": {"max_length": 512, "stride": 0}},
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Part:
    folder = tiny_model(tmp_path_factory.mktemp("tiny") / "model")
    contents: Part = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return contents


@pytest.mark.parametrize("name", REAL)
def test_parts_of_files_that_public_models_come_with_are_taken(tiny: Part, name: str) -> None:
    assert tokenizer_fault({**copy.deepcopy(tiny), **REAL[name]}) == ""
