"""Knowledge base of a sample tenant: a passage for each item and aspect, and fillers."""

import random
from collections.abc import Iterator

from qinglan.rag.contract import Passage
from standins.samples.tenant_content import ItemAspect, TenantDraw

PLAIN_TITLE = "常见问题"
"""Title of every answering passage, after the item's name, if the setting `plain_titles` is true."""

GoldPassages = dict[ItemAspect, str]
"""Id of the answering passage for each pair of item and aspect."""


def make_passages(tenant: str, seed: int, drawn: TenantDraw) -> tuple[list[Passage], GoldPassages]:
    """Build all passages in the order of the file, and the id of the answering passage for each pair."""
    rng = random.Random(f"{tenant}-{seed}-passages")
    passages: list[Passage] = []
    gold: GoldPassages = {}
    for item in drawn.items:
        for term in drawn.world.aspects:
            gold[item, term] = f"{tenant}-{len(passages):05d}"
            passages.append(_answer(gold[item, term], item, term, drawn, rng))
        for passage in _fillers(item, drawn, rng):
            passages.append(passage.model_copy(update={"id": f"{tenant}-{len(passages):05d}"}))
    return passages, gold


def _answer(id: str, item: str, term: str, drawn: TenantDraw, rng: random.Random) -> Passage:
    bodies = drawn.world.aspects[term].bodies
    text = "".join(rng.sample(bodies, rng.randint(1, len(bodies)))).format(item=item, n=rng.randint(2, 6))
    asks = _documented(term, drawn, rng)
    faq = f"常见问法：{'；'.join(asks)}。" if asks else ""
    title, opening = (PLAIN_TITLE, f"{term}：") if drawn.settings.plain_titles else (term, "")
    content, metadata = opening + text + faq, {"item": item, "kind": "说明"}
    return Passage(id=id, title=f"{item} {title}", content=content, metadata=metadata)


def _documented(term: str, drawn: TenantDraw, rng: random.Random) -> list[str]:
    usual = [ask for ask in drawn.world.aspects[term].asks if ask != drawn.gaps[term]]
    asks = rng.sample(usual, len(usual)) if rng.random() < drawn.settings.documented else []
    return [*asks, drawn.gaps[term]] if rng.random() < drawn.settings.rare else asks


def _fillers(item: str, drawn: TenantDraw, rng: random.Random) -> Iterator[Passage]:
    world = drawn.world
    for filler in world.fillers:
        other = rng.choice([name for name in drawn.items if name != item])
        term, term2 = rng.sample(list(world.aspects), 2)
        ask, ask2 = (
            rng.choice([ask for ask in world.aspects[name].asks if ask != drawn.gaps[name]]) for name in (term, term2)
        )
        values = {"item": item, "other": other, "term": term, "term2": term2, "ask": ask, "ask2": ask2}
        content = filler.content.format(**values, n=rng.randint(2, 9))
        metadata = {"item": item, "kind": filler.kind}
        yield Passage(id="later", title=filler.title.format(**values), content=content, metadata=metadata)
