"""Prompt of Qwen3-Reranker, for a vLLM that was started without the model's chat template.

Such a server joins query and document unchanged, so each of them must contain one half of the prompt. If vLLM was
started with `--chat-template`, it writes the prompt, and this module must not be used.
https://huggingface.co/Qwen/Qwen3-Reranker-0.6B
"""

import re

TASK = "Given a web search query, retrieve relevant passages that answer the query"
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
CONTROL = re.compile(r"<\|\w*\|>")
"""Pattern of the model's control tokens. They are removed from texts, which must not open a turn."""


def as_query(text: str) -> str:
    return f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n<Instruct>: {TASK}\n<Query>: {_plain(text)}\n"


def as_document(text: str) -> str:
    return f"<Document>: {_plain(text)}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def _plain(text: str) -> str:
    return CONTROL.sub(" ", text)
