"""A company as it comes: a sheet with columns of its own names, and a folder of .docx, .pdf and .md.

Its users ask follow-up questions in their own words; each has its answer in one of the documents.
"""

import json
from pathlib import Path

from openpyxl import Workbook

from tests.commands.init.documents import write_pdf, write_word

GOODS = ("徒步背包", "四季帐篷", "羽绒睡袋", "碳素手杖", "强光头灯", "钛合金炉", "保温水袋", "防潮地垫")
TOPICS = {
    "清洗方式": "能机洗吗", "保修期限": "保修多久", "退货办法": "怎么退货", "尺寸重量": "有多重",
    "存放方法": "平时怎么收", "适用温度": "零下能用吗",
}  # fmt: skip
"""Headings of the documents, and the words of users."""

OPENINGS = ("那它", "它", "请问")


def write_company(folder: Path, questions: int = 96) -> None:
    """Write 客服记录.xlsx and 资料/."""
    write_sheet(folder / "客服记录.xlsx", questions)
    write_documents(folder / "资料")


def write_sheet(path: Path, questions: int) -> None:
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(["会话ID", "用户问句", "聊天记录", "会员等级"])
    asks = list(TOPICS.values())
    for at in range(questions):
        goods, ask = GOODS[at % len(GOODS)], asks[at // len(GOODS) % len(asks)]
        turns = [{"role": "user", "content": f"有{goods}吗"}, {"role": "assistant", "content": f"{goods}有货"}]
        opening = OPENINGS[at // (len(GOODS) * len(asks)) % len(OPENINGS)]
        sheet.append([f"s{at // 2}", f"{opening}{ask}", json.dumps(turns, ensure_ascii=False), at % 3])
    sheet.append(["s-empty", None, "", 1])
    book.save(path)


def write_documents(folder: Path) -> None:
    folder.mkdir()
    for goods in GOODS[:5]:
        sections = [("Heading1", goods)]
        for heading, ask in TOPICS.items():
            sections += [("Heading2", heading), ("Normal", answer(goods, heading, ask))]
        write_word(folder / f"{goods}.docx", *sections)
    for goods in GOODS[5:]:
        parts = [f"## {heading}\n{answer(goods, heading, ask)}\n" for heading, ask in TOPICS.items()]
        (folder / f"{goods}.md").write_text(f"# {goods}\n" + "\n".join(parts), encoding="utf-8")
    write_pdf(folder / "tent.pdf", "The tent weighs 2.1 kg and packs to 45 cm.")


def answer(goods: str, heading: str, ask: str) -> str:
    return f"{goods}{heading}：{ask}，看这一条，详见随货说明。"
