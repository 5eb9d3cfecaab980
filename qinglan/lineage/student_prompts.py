"""The prompts of a model's card against those that the lineage says it was trained with.

A card holds the digest of its own prompts: who exchanges both deceives a server, which compares nothing else.

    prompt_faults(read_card(model).system_prompts, digest(model), statements)
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from qinglan.files import sha256_bytes
from qinglan.lineage.statement import Statement
from qinglan.lineage.walk import ancestors

CONVERT = "convert"
"""The stage whose statement names the students' prompts."""

STUDENT_PROMPT = "prompt student."
"""The artifact's name before the tenant's, in the statement of convert."""


def prompt_faults(prompts: Mapping[str, str], model: str, statements: Iterable[Statement]) -> Iterator[str]:
    """Name each tenant whose prompt is not what the training rows of the model with this digest showed.

    Only a step that the model comes from says so: the convert of another run, laid beside it, may have shown others.
    Statements of older runs name no student's prompt; they say nothing of it.
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
