"""Compare the prompts in a model's card with the prompts of its training, which the lineage names.

A card holds its prompts and their digest, so a server would not notice if both were exchanged.

    prompt_faults(read_card(model).system_prompts, digest(model), statements)
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from qinglan.files.files import sha256_bytes
from qinglan.lineage.signing.statement import Statement
from qinglan.lineage.trace.walk import ancestors

CONVERT = "convert"
"""The stage whose statement names the student's prompts."""

STUDENT_PROMPT = "prompt student."
"""Prefix of a student prompt's name in the statement of convert; the tenant follows."""


def prompt_faults(prompts: Mapping[str, str], model: str, statements: Iterable[Statement]) -> Iterator[str]:
    """Yield a fault for each tenant whose prompt differs from the prompts in the model's training rows.

    `model` is the model's digest. Only `convert` steps in the model's own history count, since `statements` may
    include `convert` steps of other runs, with other prompts. If no statement names a student's prompt, as in older
    runs, nothing is compared.
    """
    trained = defaultdict[str, set[str]](set)
    makers = defaultdict[str, list[Statement]](list)
    for statement in statements:
        for part in statement.made:
            makers[part.digest].append(statement)
    steps_before = ancestors([model], lambda digest: (part.digest for step in makers[digest] for part in step.used))
    convert = (step for digest in steps_before for step in makers[digest] if step.stage == CONVERT)
    for part in (part for step in convert for part in step.used):
        if part.name.startswith(STUDENT_PROMPT):
            trained[part.name.removeprefix(STUDENT_PROMPT)].add(part.digest)
    if not trained:
        return
    for tenant, text in sorted(prompts.items()):
        if tenant not in trained:
            yield f"the prompt of {tenant!r} is in it, and no training row was that tenant's"
        elif sha256_bytes(text.encode()) not in trained[tenant]:
            yield f"the prompt of {tenant!r} is another than its training rows showed"
