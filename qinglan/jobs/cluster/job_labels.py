"""Build a job's name and labels. The name depends only on run and step, so that a retry finds the same job."""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from qinglan.files.files import sha256_text

PART_OF_LABELS = {"app.kubernetes.io/part-of": "qinglan"}
RUN_LABEL, STEP_LABEL, TENANT_LABEL = "qinglan.dev/run", "qinglan.dev/step", "qinglan.dev/tenant"
SPEC_ANNOTATION, ATTEMPT_ANNOTATION = "qinglan.dev/spec", "qinglan.dev/attempt"
"""Annotations with the digest of the job's spec, and with the id of the attempt that created the job."""

SLUG, HASH = 36, 12
"""Highest number of characters of the step's name and of the hash in a job's name.

Pods and services are called <job>-worker-<number>, and their names may have 63 characters.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#rfc-1035-label-names
"""

LABEL = 63
"""Longest label value in characters.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
"""


def job_name(run: str, step: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", step.lower()).strip("-")
    slug = plain if re.match(r"[a-z]", plain) else f"job-{plain}"
    return f"{slug[:SLUG].strip('-')}-{sha256_text(run, step)[:HASH]}"


def label_value(text: str) -> str:
    """Convert a text to a valid label value: the text itself if it is valid, else its beginning and a digest."""
    if len(text) <= LABEL and re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", text):
        return text
    plain = re.sub(r"[^-A-Za-z0-9_.]+", "-", text).strip("-_.")
    return f"{plain[:SLUG]}-{sha256_text(text)[:HASH]}".strip("-_.")


def spec_digest(spec: Mapping[str, Any]) -> str:
    """Compute the digest of a job's spec, which does not depend on the order of its keys."""
    return sha256_text(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS).decode())
