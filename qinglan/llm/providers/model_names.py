"""Compares names of paid models. Two spellings of one model's name count as the same.

same_model("openai/gpt-4o-2024-08-06", "GPT-4o")     # True
same_model("gpt-4o", "gpt-4o-mini")                  # False
"""

import re
import unicodedata
from typing import Any

from qinglan.text.text import FILLERS

LOOKALIKES = str.maketrans("авеіјкмнорстухѕԛԝαεικνορτυχ", "abeijkmhopctyxsqwaeikvoptux")
"""Cyrillic and Greek letters that look like Latin ones."""

VENDOR = re.compile(
    r"^(?:(?:us|eu|apac|global)\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|openai|qwen)\."
)
"""Pattern for the vendor at the beginning of a cloud's model id, such as `us.anthropic.` on Bedrock. A vendor before
a slash is removed in plain_model_name."""

SUFFIX = re.compile(
    r"-(?:"
    r"latest|preview|exp|experimental|stable|beta"  # aliases that move to the newest version
    r"|fp8|fp16|bf16|int4|int8|awq|gptq|gguf|free|nitro|floor|batch"  # other numbers or prices, the same model
    r"|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}(?:-\d{4})?|\d{2}-\d{4}|\d{3,4}|\d{6}|\d{8}(?:-v\d+(?:-\d+)?)?"  # dates
    r")$"
)


def same_model(name: Any, other: Any) -> bool:
    """True if two names mean the same model. Differences in case, width, vendor, date and alias are ignored."""
    return plain_model_name(name) == plain_model_name(other)


def plain_model_name(name: Any) -> str:
    """Reduce a name to the letters and digits that identify the model. The result is empty if the name is not a
    text."""
    if not isinstance(name, str):
        return ""
    text = unicodedata.normalize("NFKC", name).casefold()
    visible = (sign for sign in text if unicodedata.category(sign)[0] != "C" and sign not in FILLERS)
    text = "".join(visible).translate(LOOKALIKES).strip().rpartition("/")[2]
    text = re.sub(r"[\W_]+", "-", VENDOR.sub("", text)).strip("-")
    while (shorter := SUFFIX.sub("", text)) and shorter != text:
        text = shorter
    return text.replace("-", "")
