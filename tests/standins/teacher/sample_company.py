"""A small house that both judges know: its products, its terms, and a question that needs its history."""

from pathlib import Path

import orjson

from qinglan.rag.contract import Passage
from qinglan.rows.rows import Question

PRODUCTS = ("虾青素软胶囊", "虾青素咀嚼片", "鱼油软胶囊", "益生菌冲饮粉", "叶黄素咀嚼片", "葡萄籽硬胶囊")
TERMS = {
    "每日服用频次": "常见问法：一天吃几次；每天要吃几回。",
    "贮藏条件要求": "常见问法：要放冰箱吗；怕不怕晒。",
    "退换货政策": "常见问法：买错了能退不；能换一个吗。",
    "建议零售价": "常见问法：贵不贵；怎么卖的。",
}
QUESTION = Question(
    id="1", conversation_id="1", tenant_id="fivedoctors", question="那它一天吃几次", user_profile="45岁男性",
    history_summary="客服已介绍虾青素软胶囊，上一轮问的是退换货政策，用户表示收到的包装完好无损",
)  # fmt: skip


def write_house(path: Path) -> Path:
    """Its knowledge base: a passage for each product and term."""
    files = [
        Passage(id=f"{product}{term}", title=f"{product} {term}", content=f"{product}请看标签。{text}")
        for product in PRODUCTS
        for term, text in TERMS.items()
    ]
    path.write_bytes(b"".join(orjson.dumps(passage.model_dump()) + b"\n" for passage in files))
    return path
