"""Check that a tokenizer.json has only parts and settings of the supported models.

    why = tokenizer_fault(contents)     # "" for a tokenizer whose work is proportional to its text

The file is a small program that the tokenizers library runs for every text. Sixteen parts that each double a text
would make 65,536 copies of it, and a regular expression that backtracks could run for ever. So each part must be in
PARTS and occur once, and each setting must have a value of a supported model. Supported are Qwen, Llama, SmolLM, the
architectures of the style base model (components/training/style/base_model.py), and our own tiny models.
Format: https://huggingface.co/docs/tokenizers/components
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from qinglan.terminal import visible

MAX_VOCABULARY, MAX_TOKEN_LENGTH, MAX_ADDED_TOKENS = 1 << 20, 256, 1_000
"""Largest number of tokens, of characters of a token, and of added tokens. XLM-R has 250,002 tokens, Llama 3 adds
256, and the longest tokens of Qwen and Llama have 128 characters."""

MAX_PIECES = 6
"""Largest number of texts and special tokens in a post-processor's template. XLM-R's template of two texts has 6."""

MAX_CHARACTER_EXPANSION = 33
"""Largest number of bytes to which a table may expand one character. In XLM-R's table, U+FDFA becomes 33 bytes."""

_SPACES = r" ?[^\s%s]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s|" + _SPACES % r"\p{L}\p{N}"
_MARKS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|" + _SPACES % r"\p{L}\p{M}\p{N}"
SPLITS = (
    {"Regex": _WORDS % ""}, {"Regex": _MARKS},  # Qwen2, Qwen2.5, Qwen3; Qwen3.5
    {"Regex": _WORDS % "{1,3}"},  # Llama 3
    {"Regex": r"[^\p{L}\p{N}]"},  # our own tiny models
)  # fmt: skip
"""Patterns that split texts into words."""

Part = Mapping[str, Any]
Allowed = tuple[Any, ...] | Callable[[Any], bool]
Settings = Mapping[str, Allowed]


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TOKEN_LENGTH


def _is_number(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 0)


def _is_special_token(value: Any) -> bool:
    """Return True for a pair of a token and its number."""
    token, number = value
    return _is_word(token) and _is_number(number)


def _is_vocabulary(tokens: Any) -> bool:
    return isinstance(tokens, dict) and len(tokens) <= MAX_VOCABULARY and all(map(_is_word, tokens))


def _is_character_table(value: Any) -> bool:
    """Return True if all texts of a sentencepiece table are short enough. The table holds the size of a trie, the
    trie, and texts that end with NUL."""
    try:
        table = base64.b64decode(value or "", validate=True)
    except binascii.Error:
        return False
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    return max(map(len, texts.split(b"\0"))) <= MAX_CHARACTER_EXPANSION


def _texts(pieces: Any) -> list[str]:
    """Return the names of the texts in a template, in their order; raises a ValueError for too many pieces."""
    if len(pieces) > MAX_PIECES:
        raise ValueError(f"a template of {len(pieces):,} pieces")
    return [piece["Sequence"]["id"] for piece in pieces if "Sequence" in piece]


def _is_map_of_special_tokens(tokens: Any) -> bool:
    """Return True if each special token of a template stands for exactly one token."""
    return len(tokens) <= MAX_PIECES and all(
        len(token["ids"]) == 1 == len(token["tokens"]) for token in tokens.values()
    )


BOOL = (True, False)
BYTE_LEVEL: Settings = {"add_prefix_space": BOOL, "trim_offsets": BOOL, "use_regex": BOOL}
METASPACE: Settings = {
    "replacement": ("▁",), "prepend_scheme": ("always", "first", "never"), "split": BOOL,
    "str_rep": ("▁",), "add_prefix_space": BOOL,  # the same in files of 2022
}  # fmt: skip
NORMALIZERS: Mapping[str, Settings] = {
    "NFC": {},
    "BertNormalizer": {
        "clean_text": BOOL, "handle_chinese_chars": BOOL, "strip_accents": (None, *BOOL), "lowercase": BOOL,
    },
    "Precompiled": {"precompiled_charsmap": _is_character_table},  # XLM-R
    "Replace": {"pattern": ({"String": " "}, {"Regex": " {2,}"}), "content": ("▁", " ")},  # Llama 2, XLM-R
    "Prepend": {"prepend": ("▁",)},
}  # fmt: skip
PRE_TOKENIZERS: Mapping[str, Settings] = {
    "ByteLevel": BYTE_LEVEL,
    "Metaspace": METASPACE,
    "Split": {"pattern": SPLITS, "behavior": ("Isolated",), "invert": (False,)},
    "Digits": {"individual_digits": BOOL},  # SmolLM2
    "BertPreTokenizer": {},
    "WhitespaceSplit": {},
}
POST_PROCESSORS: Mapping[str, Settings] = {
    "ByteLevel": BYTE_LEVEL,
    "RobertaProcessing": {
        "sep": _is_special_token, "cls": _is_special_token, "trim_offsets": BOOL, "add_prefix_space": BOOL,
    },
    "TemplateProcessing": {
        "single": lambda pieces: _texts(pieces) in ([], ["A"]),
        "pair": lambda pieces: _texts(pieces) in ([], ["A", "B"]),
        "special_tokens": _is_map_of_special_tokens,
    },
}  # fmt: skip
DECODERS: Mapping[str, Settings] = {
    "ByteLevel": BYTE_LEVEL,
    "Metaspace": METASPACE,
    "Replace": {"pattern": ({"String": "▁"},), "content": (" ",)},
    "ByteFallback": {},
    "Fuse": {},
    "Strip": {"content": (" ",), "start": (0, 1), "stop": (0,)},
    "WordPiece": {"prefix": ("##",), "cleanup": BOOL},
}
MODELS: Mapping[str, Settings] = {
    "BPE": {
        "dropout": (None, 0, 0.0), "unk_token": lambda token: token is None or _is_word(token),
        "continuing_subword_prefix": (None, ""), "end_of_word_suffix": (None, ""), "fuse_unk": BOOL,
        "byte_fallback": BOOL, "ignore_merges": BOOL, "vocab": _is_vocabulary,
        "merges": lambda merges: isinstance(merges, list) and len(merges) <= MAX_VOCABULARY,
    },
    "WordPiece": {
        "unk_token": _is_word, "continuing_subword_prefix": ("##",), "max_input_chars_per_word": (100,),
        "vocab": _is_vocabulary,
    },
    "Unigram": {
        "unk_id": _is_number, "byte_fallback": BOOL,
        "vocab": lambda tokens: len(tokens) <= MAX_VOCABULARY and all(_is_word(token) for token, _ in tokens),
    },
}  # fmt: skip
PARTS: tuple[tuple[str, str, Mapping[str, Settings]], ...] = (
    ("normalizer", "normalizers", NORMALIZERS),
    ("pre_tokenizer", "pretokenizers", PRE_TOKENIZERS),
    ("post_processor", "processors", POST_PROCESSORS),
    ("decoder", "decoders", DECODERS),
    ("model", "", MODELS),
)
"""Parts of a tokenizer.json: the part's key, the key under which a sequence lists its parts, and the settings that
each type may have."""

KEYS = {name for name, _, _ in PARTS} | {"version", "truncation", "padding", "added_tokens"}
TRUNCATION: Settings = {
    "direction": ("Right", "Left"), "max_length": _is_number, "strategy": ("LongestFirst", "OnlyFirst", "OnlySecond"),
    "stride": (0,),
}  # fmt: skip
PADDING: Settings = {
    "strategy": ("BatchLongest",), "direction": ("Right", "Left"), "pad_to_multiple_of": (None, 8, 16, 32, 64),
    "pad_id": _is_number, "pad_type_id": _is_number, "pad_token": _is_word,
}  # fmt: skip
"""Settings that padding may have. Padding to a fixed length would make each short text long, so it is refused, like a
stride in TRUNCATION, which would make many texts of a long one."""


def tokenizer_fault(contents: Any) -> str:
    """Return why the contents of a tokenizer.json are refused; "" if they are accepted."""
    try:
        return next(_faults(contents), "")
    except (TypeError, AttributeError, KeyError, ValueError, IndexError) as error:
        return f"no tokenizer ({visible(str(error)[:80])})"


def _faults(contents: Any) -> Iterator[str]:
    if unknown := sorted(contents.keys() - KEYS):
        yield f"a tokenizer with {_quoted(unknown[0])}, which no supported model has"
    for name, inner, types in PARTS:
        if (part := contents.get(name)) is not None:  # no loader takes a file without a model
            yield from _part_faults(part, name, inner, types)
    yield from _setting_faults(contents.get("truncation") or {}, "truncation", TRUNCATION)
    yield from _setting_faults(contents.get("padding") or {}, "padding", PADDING)
    added = contents.get("added_tokens") or []
    if len(added) > MAX_ADDED_TOKENS:
        yield f"a tokenizer with {len(added):,} added tokens; {MAX_ADDED_TOKENS:,} are enough for any"
    if not all(_is_word(token["content"]) for token in added):
        yield f"a tokenizer with an added token of more than {MAX_TOKEN_LENGTH} characters"


def _part_faults(part: Part, name: str, inner: str, types: Mapping[str, Settings]) -> Iterator[str]:
    """Yield the faults of a part, or of the parts in a sequence. A sequence may hold neither another sequence nor the
    same part twice."""
    parts = part[inner] if inner and part["type"] == "Sequence" else [part]
    identities = set()
    for item in parts:
        if (kind := item["type"]) not in types:
            yield f"a {name} of type {_quoted(str(kind))}, which no supported model has"
            continue
        yield from _setting_faults(item, f"{name} {kind}", types[kind])
        identity = (kind, json.dumps(item.get("pattern"), sort_keys=True))
        if identity in identities:
            yield f"its {name} has {kind} twice, by which a text can grow without a bound"
        identities.add(identity)


def _setting_faults(part: Part, name: str, settings: Settings) -> Iterator[str]:
    for key, value in part.items():
        if key != "type" and (key not in settings or not _is_allowed(value, settings[key])):
            yield f"its {name} has a value of {_quoted(key)} that no supported model has"


def _is_allowed(value: Any, allowed: Allowed) -> bool:
    if callable(allowed):
        return allowed(value)
    return any(value == item and type(value) is type(item) for item in allowed)


def _quoted(text: str) -> str:
    return f"'{visible(text[:80])}'"
