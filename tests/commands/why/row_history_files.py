"""A run's files as its stages leave them, for five rows: what `qinglan why` reads."""

from pathlib import Path

from components.data.convert.config import ConvertConfig
from components.data.convert.stage import convert
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import dump_config, load_config
from qinglan.files.files import dump_line
from qinglan.rows.rows import QuarantinedRow, Rewrite, ValidatedRewrite
from tests.models.validated_rows import validated

PREDICTION = (
    b'{"id": "tested", "gold": ["k1"], "systems": {"teacher": {"rewrite": "old", "rank": null}, '
    b'"rl": {"rewrite": "new", "rank": 1}}}\n'
)


def write_stage_files(root: Path) -> RunDir:
    run = RunDir(root)
    run.files.mkdir()
    rows = [
        row("tested", split="test", question="那虾青素软胶囊一天要吃几次啊"),
        row("twin", split="train", question="那虾青素软胶囊一天要吃几次啊？"),
        row("learned", split="train", question="孕妇能不能用这个呢"),
        row("rejected", split="train", question="多少钱一盒包邮吗", accepted=False, reason="nothing found"),
        row("long", split="dev", question="要不要放在冰箱里保存"),
    ]
    write(run.shown("validated"), rows)
    write(run.shown("rewrites"), [Rewrite.model_validate(plain(each)) for each in rows])
    convert(
        run.shown("validated"), run.shown("chats"), run.shown("prompts"), run.shown("locked_test"),
        run.shown("left_out"), ConvertConfig(),
    )  # fmt: skip
    write(run.shown("generate_quarantine"), [set_aside("refused", "generate", "filtered", "the teacher refused it")])
    (run.shown("ppo_log")).mkdir()
    write(run.shown("ppo_log") / "left_out.jsonl", [set_aside("long", "ppo", "prompt_too_long", "512 tokens")])
    run.shown("predictions").write_bytes(PREDICTION)
    dump_config(load_config("fivedoctors", "demo", questions=Path("q"), knowledge_base=Path("k")), run.config)
    return run


def row(row_id: str, **changes: object) -> ValidatedRewrite:
    return validated(id=row_id, conversation_id=row_id, **changes)


def plain(row: ValidatedRewrite) -> dict[str, object]:
    return {name: getattr(row, name) for name in Rewrite.model_fields}


def set_aside(row_id: str, stage: str, reason: str, detail: str) -> QuarantinedRow:
    return QuarantinedRow(id=row_id, tenant_id="fivedoctors", where="", stage=stage, reason=reason, detail=detail)


def write(path: Path, rows: list[ValidatedRewrite] | list[Rewrite] | list[QuarantinedRow]) -> None:
    path.write_bytes(b"".join(map(dump_line, rows)))
