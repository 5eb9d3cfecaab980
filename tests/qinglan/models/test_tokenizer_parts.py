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
from tests.models.tiny_rewriter import tiny_model
from tests.releases.registered_release import tiny_weights

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
WORD_PIECE: Part = {"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}
DOUBLE = replace({"String": "a"}, "aa")
BYTE_LEVEL: Part = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
MANY_IDS = {"</s>": {"id": "</s>", "ids": [1] * 200_000, "tokens": ["x"]}}
MANY_TOKENS = {str(number): {"id": "x", "ids": [1], "tokens": ["x"]} for number in range(99)}
TABLE = charsmap(b"x" * 33)

WITHOUT_BOUND: list[tuple[str, Any, str]] = [
    ("normalizer", sequence("normalizers", *[DOUBLE] * 26), "normalizer Replace has a value of 'pattern'"),
    ("normalizer", replace({"String": " "}, "▁▁"), "value of 'content'"),
    ("normalizer", replace({"String": ""}, "a"), "value of 'pattern'"),
    ("normalizer", replace({"Regex": "(a+)+$"}, ""), "value of 'pattern'"),
    ("normalizer", replace({"Regex": " {2,}"}, "x" * 1000), "value of 'content'"),
    ("normalizer", replace({"Regex": " {2,}", "String": " "}, " "), "value of 'pattern'"),
    ("normalizer", sequence("normalizers", *[replace({"String": " "}, "▁")] * 2), "Replace twice"),
    ("normalizer", {"type": "Prepend", "prepend": "x" * 1000}, "value of 'prepend'"),
    ("normalizer", sequence("normalizers", *[{"type": "Prepend", "prepend": "▁"}] * 2), "Prepend twice"),
    ("normalizer", charsmap(b"a", b"x" * 64), "value of 'precompiled_charsmap'"),
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "!"}, "value of 'precompiled_charsmap'"),
    ("normalizer", sequence("normalizers", TABLE, replace({"String": " "}, "▁"), TABLE), "Precompiled twice"),
    ("normalizer", sequence("normalizers", {"type": "NFKC"}, TABLE), "type 'NFKC'"),
    ("normalizer", sequence("normalizers", *[{"type": "BertNormalizer"}] * 16), "BertNormalizer twice"),
    ("normalizer", sequence("normalizers", TABLE, {**TABLE, "pattern": {"Regex": "x"}}), "value of 'pattern'"),
    ("normalizer", sequence("normalizers", sequence("normalizers", {"type": "NFC"})), "type 'Sequence'"),
    ("normalizer", BYTE_LEVEL, "type 'ByteLevel'"),
    ("normalizer", {"type": ["NFC"]}, "no tokenizer"),
    ("normalizer", [], "no tokenizer"),
    ("pre_tokenizer", sequence("pretokenizers", BYTE_LEVEL, BYTE_LEVEL), "ByteLevel twice"),
    ("pre_tokenizer", sequence("pretokenizers", BYTE_LEVEL, {**BYTE_LEVEL, "use_regex": True}), "ByteLevel twice"),
    ("pre_tokenizer", {**BYTE_LEVEL, "use_regex": 1}, "value of 'use_regex'"),
    ("pre_tokenizer", {**BYTE_LEVEL, "rounds": 16}, "value of 'rounds'"),
    ("pre_tokenizer", split({"Regex": "(a|a)*b"}), "value of 'pattern'"),
    ("pre_tokenizer", split({"String": ""}), "value of 'pattern'"),
    ("pre_tokenizer", {**split({"Regex": r"[^\p{L}\p{N}]"}), "invert": True}, "value of 'invert'"),
    ("pre_tokenizer", {"type": "UnicodeScripts"}, "type 'UnicodeScripts'"),
    ("pre_tokenizer", {"type": "Metaspace", "replacement": "▁▁▁"}, "value of 'replacement'"),
    ("pre_tokenizer", sequence("pretokenizers", *[{"type": "Digits"}] * 17), "Digits twice"),
    ("post_processor", template([TEXT, *[END] * 200_000]), "no tokenizer .a template of 200,001 pieces"),
    ("post_processor", template([TEXT, END], MANY_IDS), "value of 'special_tokens'"),
    ("post_processor", template([TEXT], MANY_TOKENS), "value of 'special_tokens'"),
    ("post_processor", template([TEXT] * 2), "value of 'single'"),
    ("post_processor", template([TEXT] * 16), "template of 16 pieces"),
    ("post_processor", sequence("processors", *[template([TEXT, END])] * 40), "TemplateProcessing twice"),
    ("post_processor", {"type": "RobertaProcessing", "sep": ["x" * 10**6, 1], "cls": ["x", 1]}, "value of 'sep'"),
    ("decoder", DOUBLE, "value of 'pattern'"),
    ("decoder", {"type": "CTC"}, "type 'CTC'"),
    ("decoder", sequence("decoders", *[BYTE_LEVEL] * 2), "ByteLevel twice"),
    ("decoder", {"type": "Strip", "content": " ", "start": 10**9, "stop": 10**9}, "value of 'start'"),
    ("decoder", {"type": "WordPiece", "prefix": "", "cleanup": True}, "value of 'prefix'"),
    ("model", {"type": "WordLevel", "vocab": {}, "unk_token": "x"}, "type 'WordLevel'"),
    ("model", {**BPE, "dropout": 0.5}, "value of 'dropout'"),
    ("model", {**BPE, "continuing_subword_prefix": "x" * 10**6}, "value of 'continuing_subword_prefix'"),
    ("model", {**BPE, "vocab": {"a" * 999: 0}}, "value of 'vocab'"),
    ("model", {**BPE, "merges": None}, "value of 'merges'"),
    ("model", {**WORD_PIECE, "max_input_chars_per_word": 1000}, "value of 'max_input_chars_per_word'"),
    ("model", {**WORD_PIECE, "continuing_subword_prefix": "x" * 10**5}, "value of 'continuing_subword_prefix'"),
    ("model", {"type": "Unigram", "vocab": [["a" * 1000, 0.0]]}, "value of 'vocab'"),
    ("model", {"type": "Sequence", "": [BPE, BPE]}, "type 'Sequence'"),
    ("model", 1, "no tokenizer"),
    ("added_tokens", [{"id": number, "content": str(number)} for number in range(1_001)], "1,001 added tokens"),
    ("added_tokens", [{"id": 1, "content": "x" * 1_000}], "an added token of more than 256"),
    ("added_tokens", [{"id": 1}], "no tokenizer"),
    ("truncation", {"max_length": 2, "stride": 1, "strategy": "LongestFirst"}, "value of 'stride'"),
    ("padding", {"strategy": {"Fixed": 10**9}, "pad_id": 0}, "value of 'strategy'"),
    ("padding", {"strategy": "BatchLongest", "pad_to_multiple_of": 1_000}, "value of 'pad_to_multiple_of'"),
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
    "Qwen2Tokenizer", "Qwen3_5Tokenizer", "LlamaTokenizer", "GPT2Tokenizer", "RobertaTokenizer", "BertTokenizer",
    "XLMRobertaTokenizer",
]  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_the_parts_of_supported_models_are_taken(name: str) -> None:
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
    "XLM-R": {"normalizer": sequence("normalizers", charsmap("صلى الله عليه وسلم".encode()),
                                     replace({"Regex": " {2,}"}, " "))},
    "XLM-R of 2020": {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}},
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
def test_parts_of_files_that_supported_models_come_with_are_taken(tiny: Part, name: str) -> None:
    assert tokenizer_fault({**copy.deepcopy(tiny), **REAL[name]}) == ""
