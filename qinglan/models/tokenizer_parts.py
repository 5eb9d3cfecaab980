"""The parts that a tokenizer.json may have: those of Qwen, Llama, SmolLM, BERT, RoBERTa, XLM-R and ModernBERT.

    why = tokenizer_fault(contents)     # "" for a tokenizer whose work grows with its text only

The file is a small program that the tokenizers library runs for every text: normalisers that each double the text,
or a regular expression that backtracks, would work for ever. So each part is one of a list, in limited number, no
part makes a text longer than a constant factor, and regular expressions are those of known models, to the letter.
The format: https://huggingface.co/docs/tokenizers/components
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from qinglan.terminal import visible

KEYS = frozenset({
    "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
    "model",
})  # fmt: skip
MAX_PARTS = 16
"""Parts of a sequence, such as normalisers."""

MAX_VOCABULARY, MAX_TOKEN_LENGTH, MAX_ADDED_TOKENS = 1 << 20, 1_000, 10_000
"""Tokens, characters of a token, and added tokens. Gemma has 262,144 tokens; Qwen's longest have 128 characters."""

MAX_SPECIAL_TOKENS = 16
"""Tokens that a post-processor puts around a text, and pieces of its template."""

MAX_WORD_LENGTH = 1_000
"""Characters of a word that WordPiece looks up: its work grows with their square. BERT has 100."""

MAX_CHARACTER_EXPANSION = 64
"""Bytes that one character may become by a table of normalised characters. NFKC has 33 at most, of U+FDFA."""

SPACES = frozenset({" {2,}", r"\s{2,}|[\n\r\t]", r"[\n\r\t]", r"\n", r"\s+", r" +▁", r"^▁+$"})
"""Regular expressions for white space, each replaced by one character at most (Llama, ALBERT, XLM-R, CLIP)."""

_SPACES = r" ?[^\s%s]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s|" + _SPACES % r"\p{L}\p{N}"
_MARKS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|" + _SPACES % r"\p{L}\p{M}\p{N}"
SPLITS = frozenset({
    _WORDS % "", _MARKS,  # Qwen2, Qwen2.5, Qwen3; Qwen3.5
    _WORDS % "{1,3}", _WORDS % "{1,2}",  # Llama 3, GLM 4
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",  # GPT-2, RoBERTa
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",  # the same, shortened
    r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", r"[^\p{L}\p{N}]", r"\s+", r"[\r\n]",  # DeepSeek; our own tiny model
})  # fmt: skip
"""Regular expressions that split texts into words."""

Part = Mapping[str, Any]
Rule = Callable[[Part], str]


def tokenizer_fault(contents: Any) -> str:
    """Why the contents of a tokenizer.json are refused; "" if they are not."""
    try:
        return next(filter(None, _faults(contents)), "")
    except (TypeError, AttributeError, KeyError, ValueError, IndexError) as error:
        return f"no tokenizer ({visible(str(error)[:80])})"


def _faults(contents: Any) -> Iterator[str]:
    if unknown := sorted(contents.keys() - KEYS):
        yield f"a tokenizer with {_quoted(unknown[0])}, which no supported model has"
    for name, inner, rules in SEQUENCES:
        yield from _part_faults(contents.get(name), name, inner, rules)
    yield from _part_faults(contents.get("model"), "model", "", MODELS)  # without one, no loader takes the file
    yield _added_tokens(contents.get("added_tokens") or [])
    truncation, padding = contents.get("truncation") or {}, contents.get("padding") or {}
    if truncation.get("stride"):
        yield "its truncation has a stride, by which a long text becomes many"
    if isinstance(padding.get("strategy"), dict) or (padding.get("pad_to_multiple_of") or 0) > MAX_TOKEN_LENGTH:
        yield "its padding has a length of its own"


def _part_faults(part: Part | None, name: str, inner: str, rules: Mapping[str, Rule]) -> Iterator[str]:
    """The faults of a part, or of the parts of a sequence, which holds no other sequence."""
    if part is None:
        return
    parts = part[inner] if inner and part["type"] == "Sequence" else [part]
    if len(parts) > MAX_PARTS:
        yield f"a {name} of {len(parts):,} parts; {MAX_PARTS} are enough for any"
    for item in parts:
        if (kind := item["type"]) not in rules:
            yield f"a {name} of type {_quoted(str(kind))}, which no supported model has"
        elif why := rules[kind](item):
            yield f"its {name} {_quoted(kind)} {why}"


def _allowed(part: Part) -> str:
    return ""


def _replace(part: Part) -> str:
    """A text replaced by a longer one could double with every part."""
    pattern, content = part["pattern"], part["content"]
    if "Regex" in pattern:
        known = pattern["Regex"] in SPACES and len(content) <= 1
        return "" if known else "replaces by an unknown regular expression"
    return "" if 0 < len(pattern["String"]) >= len(content) else "replaces a text by a longer one"


def _split(part: Part) -> str:
    pattern = part["pattern"]
    if "Regex" in pattern:
        return "" if pattern["Regex"] in SPLITS else "splits by a regular expression of no supported model"
    return "" if pattern["String"] else "splits by an empty text"


def _prepend(part: Part) -> str:
    return "" if len(part["prepend"]) <= MAX_PARTS else "prepends a long text"


def _precompiled(part: Part) -> str:
    """A table of characters as sentencepiece writes it: the size of a trie, the trie, and texts that end with NUL."""
    try:
        table = base64.b64decode(part["precompiled_charsmap"] or "", validate=True)
    except binascii.Error:
        return "is no table of characters"
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    longest = max(map(len, texts.split(b"\0")))
    return "makes one character a long text" if longest > MAX_CHARACTER_EXPANSION else ""


def _template(part: Part) -> str:
    """Each text once, and a few special tokens around it."""
    for name, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        pieces = part.get(name) or []
        if [piece["Sequence"]["id"] for piece in pieces if "Sequence" in piece] not in (texts, []):
            return "does not hold each text once"
        if len(pieces) > MAX_SPECIAL_TOKENS:
            return f"has {len(pieces):,} pieces around a text"
    special = part.get("special_tokens") or {}
    most = max((len(token["ids"]) + len(token["tokens"]) for token in special.values()), default=0)
    many = max(most, len(special)) > 2 * MAX_SPECIAL_TOKENS
    return f"puts {max(most, len(special)):,} tokens around a text" if many else ""


def _replacement(part: Part) -> str:
    return "" if len(part.get("replacement", "▁")) == 1 else "writes a space as several characters"


def _bpe(model: Part) -> str:
    if model.get("dropout"):
        return "reads the same text differently each time (dropout)"
    if len(model["merges"]) > MAX_VOCABULARY:
        return f"has {len(model['merges']):,} merges"
    return _vocabulary(model["vocab"])


def _word_piece(model: Part) -> str:
    if model.get("max_input_chars_per_word", 100) > MAX_WORD_LENGTH:
        return f"reads words of {model['max_input_chars_per_word']:,} characters"
    return _vocabulary(model["vocab"])


def _unigram(model: Part) -> str:
    return _vocabulary([token for token, _ in model["vocab"]])


def _vocabulary(tokens: Any) -> str:
    if len(tokens) > MAX_VOCABULARY:
        return f"has {len(tokens):,} tokens; {MAX_VOCABULARY:,} are enough for any"
    longest = max(map(len, tokens), default=0)
    return f"has a token of {longest:,} characters" if longest > MAX_TOKEN_LENGTH else ""


def _added_tokens(tokens: Any) -> str:
    if len(tokens) > MAX_ADDED_TOKENS:
        return f"a tokenizer with {len(tokens):,} added tokens; {MAX_ADDED_TOKENS:,} are enough for any"
    return _vocabulary([token["content"] for token in tokens])


def _quoted(text: str) -> str:
    return f"'{visible(text[:80])}'"


NORMALIZERS: Mapping[str, Rule] = {
    **dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents", "Strip"), _allowed),
    "BertNormalizer": _allowed, "Replace": _replace, "Prepend": _prepend, "Precompiled": _precompiled,
}  # fmt: skip
PRE_TOKENIZERS: Mapping[str, Rule] = {
    **dict.fromkeys(("ByteLevel", "BertPreTokenizer", "Whitespace", "WhitespaceSplit"), _allowed),
    **dict.fromkeys(("Punctuation", "Digits"), _allowed),
    "Metaspace": _replacement, "Split": _split,
}  # fmt: skip
POST_PROCESSORS: Mapping[str, Rule] = {
    **dict.fromkeys(("ByteLevel", "BertProcessing", "RobertaProcessing"), _allowed), "TemplateProcessing": _template,
}  # fmt: skip
DECODERS: Mapping[str, Rule] = {
    **dict.fromkeys(("ByteLevel", "ByteFallback", "Fuse", "Strip", "WordPiece", "BPEDecoder"), _allowed),
    "Metaspace": _replacement, "Replace": _replace,
}  # fmt: skip
MODELS: Mapping[str, Rule] = {"BPE": _bpe, "WordPiece": _word_piece, "Unigram": _unigram}
SEQUENCES: tuple[tuple[str, str, Mapping[str, Rule]], ...] = (
    ("normalizer", "normalizers", NORMALIZERS),
    ("pre_tokenizer", "pretokenizers", PRE_TOKENIZERS),
    ("post_processor", "processors", POST_PROCESSORS),
    ("decoder", "decoders", DECODERS),
)
"""Each key of the file with the key of its sequences and the rule of each type."""
