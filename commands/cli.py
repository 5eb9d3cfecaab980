"""The command `qinglan`. Everything heavy is imported inside a command, so that --help answers at once.

Exit codes: 0 done, 1 unexpected, 2 configuration or command, 3 data, 4 outage, 5 budget, 6 training,
7 held or not promoted, 8 altered, 9 incomplete, 130 stopped by Ctrl-C, 143 stopped by SIGTERM.
"""

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from commands.audit.cli import audit
from commands.beir.cli import evaluate
from commands.check_rag.cli import check_rag
from commands.compare_teachers.cli import compare_teachers
from commands.doctor.cli import doctor
from commands.fit import fit
from commands.headroom.cli import headroom
from commands.help_language import run_app, translate_argparse
from commands.init.cli import init
from commands.keys import keys
from commands.rollout.cli import rollout
from commands.style import style
from commands.submit import cancel, follow, submit
from pipelines.execute.interrupts import TERMINATED, TerminatedCommand, end_at_sigterm, interrupted
from pipelines.lines.overrides import DEFAULT_PROFILE, SetOption, parse_overrides, with_overrides
from qinglan.terminal import in_language, quoted, say, say_error, say_json, say_warnings, use_language

if TYPE_CHECKING:
    from pipelines.checks.plan import Plan

EXIT_CODES = (
    "Exit codes: 0 done; 1 unexpected error; 2 configuration or command; 3 wrong data; "
    "4 something we depend on gave no answer; 5 the budget would be passed; 6 a training that stopped; "
    "7 the gate says hold, or a canary was not promoted; 8 an audit found something altered; 9 or something missing; "
    "130 stopped by Ctrl-C; 143 stopped by SIGTERM."
)

DEBUG = "QINGLAN_DEBUG"


class InterruptibleGroup(TyperGroup):
    """The commands; typer alone would end at Ctrl-C without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise interrupted(sys.argv[1:]) from error
        except (SystemExit, asyncio.CancelledError) as error:  # the second is an event loop's at SIGTERM
            if isinstance(error, SystemExit) and error.code != TERMINATED:
                raise
            raise interrupted(sys.argv[1:], TerminatedCommand) from error


app = typer.Typer(
    name="qinglan",
    cls=InterruptibleGroup,
    help="From a spreadsheet of user questions and a knowledge base to a query rewriter with its own proof.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
serve = typer.Typer(help="Run one of the servers on this machine.", no_args_is_help=True)
app.add_typer(serve, name="serve")
app.add_typer(style, name="style")
app.add_typer(keys, name="keys")
app.add_typer(rollout, name="rollout")
app.command()(init)
app.command()(audit)
app.command("compare-teachers")(compare_teachers)
app.command()(evaluate)
app.command()(fit)
app.command()(headroom)
app.command("check-rag")(check_rag)
app.command()(doctor)
app.command()(submit)
app.command()(follow)
app.command()(cancel)

Tenant = Annotated[str, typer.Argument(help="A tenant: fivedoctors, chengla, or yours: a folder of tenants/.")]
Profile = Annotated[
    str, typer.Option(help="Of tenants/<tenant> or pipelines/configs/<tenant>, or a path that ends in .yaml.")
]
Training = Annotated[str, typer.Option(help="Of pipelines/configs/training, in place of the profile's own.")]
Questions = Annotated[Path | None, typer.Option(help="The spreadsheet (.xlsx), CSV or JSONL of questions.")]
KnowledgeBase = Annotated[Path | None, typer.Option(help="The knowledge base, JSONL; or a folder of <tenant>.jsonl.")]
Out = Annotated[
    Path | None, typer.Option(help="The run's folder, runs/<tenant>-<profile> by default. Again: goes on.")
]
Until = Annotated[str, typer.Option(help="Stop after this stage, such as convert or sft.", show_default="the last")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")]


def main() -> None:
    """Run the command; an error we can explain is a message and its exit code, not a traceback."""
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack a letter; to say so must not be an error
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    serves = sys.argv[1:2] == ["serve"]
    if not serves:  # a server sets up its own logging, which is English
        say_warnings()
    if not serves or sys.stderr.isatty() or "--help" in sys.argv:  # without a person, a server's lines are a log too
        use_language()
    end_at_sigterm()
    try:
        sys.exit(run_app(app))
    except typer.TyperException as error:
        use_language()
        _explain_usage(error)
    except Exception as error:
        _explain(error)


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help=f"Show an error's causes as a traceback; {DEBUG}=1 does the same.")
    ] = False,
) -> None:
    if debug:
        os.environ[DEBUG] = "1"  # for the processes that this one starts, too


def _explain_usage(error: typer.TyperException) -> NoReturn:
    """Say what is wrong with the words of the command, which may be text from anywhere."""
    context = getattr(error, "ctx", None)
    if message := error.format_message():  # a group without a command has printed its help, and says nothing
        hint = context and f"`{context.command_path} --help` shows what it takes."
        sentence = message if message.endswith((".", "?")) else f"{message}."
        say(f"qinglan: {in_language(' '.join(filter(None, (sentence, hint))))}", to=sys.stderr)
    sys.exit(error.exit_code)


def _explain(error: Exception) -> NoReturn:
    import traceback

    from qinglan.errors import QinglanError
    from qinglan.files.plain_files import UnwritableFileError, unwritable_file

    trace = quoted("".join(traceback.format_exception(error)))
    if unwritable := unwritable_file(error, "the disk"):
        error = unwritable
    elif isinstance(error, OSError) and error.filename:
        error = UnwritableFileError(str(error.filename), str(error.strerror))
    if isinstance(error, typer.Abort):
        say(
            "qinglan: stopped: a question got no answer. --yes, or the command's options, answer beforehand.",
            to=sys.stderr,
        )
        sys.exit(130)
    if not isinstance(error, QinglanError):
        say("qinglan: stopped by an unexpected error:", *trace, to=sys.stderr)
        sys.exit(1)
    if os.environ.get(DEBUG):
        say(*trace, to=sys.stderr)
    say_error(error, "qinglan")
    sys.exit(error.exit_code)


@app.command()
def sample(
    tenant: Annotated[str, typer.Argument(help="fivedoctors or chengla; or style, for labelled answers of both.")],
    out: Annotated[Path, typer.Option(help="The folder to write to.")],
    conversations: Annotated[int, typer.Option(min=8, help="1,600 give 1,000+ dev and test questions.")] = 1600,
    rows: Annotated[int, typer.Option(min=26, help="Labelled answers, of style alone.")] = 4000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    variant: Annotated[
        str, typer.Option(help="A harder world of a tenant's: standins/samples/README.md lists them.")
    ] = "plain",
    as_json: Json = False,
) -> None:
    """Write a seeded sample: a tenant's knowledge base and spreadsheet of questions, or labelled answers."""
    from standins.samples import write_sample
    from standins.samples.style import write_style_sample
    from standins.samples.unchanged_files import without_overwriting

    with without_overwriting(out) as folder:
        if tenant == "style":
            counts: Any = write_style_sample(folder, rows, seed)
        else:
            counts = write_sample(tenant, folder, conversations, seed, variant)
    say_json(counts._asdict()) if as_json else say(f"{out}: {counts.in_words()}")


@app.command()
def plan(
    tenant: Tenant,
    profile: Profile = DEFAULT_PROFILE,
    training: Training = "",
    questions: Questions = None,
    knowledge_base: KnowledgeBase = None,
    out: Out = None,
    until: Until = "",
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Count the calls, cost and time of a run before anything is spent, and name what it waits for.

    Where `qinglan run` with the same arguments would be refused, the last lines say so, and the exit code is its own.
    """
    from commands.plan_table import print_plan
    from pipelines.checks.planned_run import plan_run
    from pipelines.execute.execution import select_stages
    from pipelines.execute.rundir import run_folder
    from pipelines.lines.config import load_config
    from pipelines.lines.rewriter import REWRITER

    options = with_overrides(set_, questions=questions, knowledge_base=knowledge_base, training=training or None)
    config = load_config(tenant, profile, **options)
    planned = plan_run(config, out or run_folder(tenant, profile), select_stages(REWRITER, "", until))
    say_json(planned.plan.model_dump(mode="json")) if as_json else print_plan(planned.plan)
    if planned.refusal:
        raise planned.refusal


@app.command()
def run(
    tenant: Tenant,
    profile: Profile = DEFAULT_PROFILE,
    training: Training = "",
    questions: Questions = None,
    knowledge_base: KnowledgeBase = None,
    out: Out = None,
    only: Annotated[str, typer.Option(help="Run this stage alone, on what the run's folder holds.")] = "",
    until: Until = "",
    yes: Annotated[bool, typer.Option("--yes", help="Spend without asking.")] = False,
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Run the thread here, from the sheet to a signed release: the same graph as on the cluster, with kfp.local."""
    from pipelines.execute.rundir import run_folder
    from pipelines.lines.config import load_config

    root = out or run_folder(tenant, profile)
    options = with_overrides(set_, questions=questions, knowledge_base=knowledge_base, training=training or None)
    config = load_config(tenant, profile, **options)
    if not as_json:  # the imports below, the checks and the services take several seconds
        say(f"[run] {tenant} in {root}: reads the files and checks what a run needs.", to=sys.stderr)

    from commands.run.run import run_pipeline
    from commands.run.summary import print_summary
    from pipelines.execute.execution import raise_if_held

    approve = _ask_to_spend if config.pays and not yes else None
    record = run_pipeline(config, root, only, until, quiet=as_json, approve=approve)
    say_json(record) if as_json else print_summary(config, root, record)
    raise_if_held(record)


def _ask_to_spend(plan: "Plan") -> None:
    from commands.plan_table import print_plan

    print_plan(plan)
    if not _confirm_spending("This run spends money. Look at the plan above, then add --yes."):
        raise typer.Exit(0)


def _confirm_spending(without_terminal: str) -> bool:
    from qinglan.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError(without_terminal)
    return typer.confirm(in_language("Spend this?"))


@app.command()
def prepay(
    tenant: Tenant,
    profile: Profile = DEFAULT_PROFILE,
    training: Training = "",
    questions: Questions = None,
    knowledge_base: KnowledgeBase = None,
    out: Out = None,
    batch_rows: Annotated[int, typer.Option(min=1, max=50_000, help="Most rows of one batch.")] = 50_000,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Leave open batches for good; their rows may have been billed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Spend without asking.")] = False,
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Pay ahead for what a run will ask, through the providers' batch APIs: about half the price, within a day."""
    from commands import prepay as prepayment
    from pipelines.execute.rundir import run_folder
    from pipelines.lines.config import load_config

    options = with_overrides(set_, questions=questions, knowledge_base=knowledge_base, training=training or None)
    config = load_config(tenant, profile, **options)
    root = out or run_folder(tenant, profile)
    if give_up:
        names = [batch.batch or batch.name for batch in prepayment.give_up(root)]
        say_json({"given_up": names}) if as_json else say(f"{len(names)} batches given up.", *names)
        return

    def approve(quote: prepayment.Quote) -> bool:
        say(*prepayment.quote_in_words(quote), to=sys.stderr)
        return yes or not config.pays or _confirm_spending("This spends money. Look at the price, then add --yes.")

    result = prepayment.prepay_run(config, root, approve, batch_rows)
    if result is None:
        raise typer.Exit(0)
    if as_json:
        say_json({**result._asdict(), "unpaid": [row._asdict() for row in result.unpaid]})
    else:
        say(*prepayment.result_in_words(result, root / "journal.sqlite"))
    prepayment.raise_problems(result)


@app.command()
def why(
    row_id: Annotated[str, typer.Argument(help="A row's id; row-N for row N of a sheet without ids.")],
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    as_json: Json = False,
) -> None:
    """Tell what became of one row of a run at each stage, and why, with the figures."""
    from commands.why import note_lines, row_history
    from pipelines.execute.rundir import RunDir

    notes = row_history(RunDir(run), row_id)
    if as_json:
        say_json([note._asdict() for note in notes])
    else:
        say(*(line for note in notes for line in note_lines(note)))


@app.command()
def blind(
    sheet: Annotated[Path, typer.Argument(help="blind_sample.xlsx of a run, with people's scores filled in.")],
    out: Annotated[Path, typer.Option(help="The run's folder: its key says who wrote what.")],
    as_json: Json = False,
) -> None:
    """Show people's blind scores for each system, and how far the examiner agrees with them."""
    from commands.run.summary import print_human_scores
    from components.evaluation.rewriter.blind_sheet import read_scores
    from pipelines.execute.recorded_config import check_line
    from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
    from pipelines.lines.rewriter import REWRITER

    check_line(REWRITER, RunDir(out))
    files = RunDir(out).files
    scores = read_scores(sheet, files / ARTIFACT_FILES["blind_key"], files / ARTIFACT_FILES["predictions"])
    say_json(scores) if as_json else print_human_scores(scores)


@app.command("compile")
def compile_(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("pipelines/compiled"),
    tenant: Annotated[str, typer.Option(help="This tenant's graph alone; `style` for the style model's.")] = "",
    profile: Annotated[
        str,
        typer.Option(help="Of the tenant: its settings are part of the graph.", show_default="gpt; of style: a100"),
    ] = "",
    training: Training = "",
    image: Annotated[
        list[str] | None, typer.Option(help="NAME=REFERENCE@sha256:DIGEST, each image of a release.")
    ] = None,
    set_: SetOption = None,
) -> None:
    """Write pipelines as YAML for Kubeflow, with a profile's settings and machines; the same bytes every time."""
    from pipelines.graph.compiler import compile_targets, read_images, select_targets

    targets = select_targets(tenant, profile, training, parse_overrides(set_ or ()))
    for path in compile_targets(targets, out, read_images(image or ())):
        say(path)


@app.command()
def demo(
    conversations: Annotated[int, typer.Option(min=8, help="Sample conversations for each tenant.")] = 1600,
    out: Annotated[Path, typer.Option(help="Where samples and the run go.")] = Path("runs/demo"),
) -> None:
    """The whole thread on this machine: sample both tenants, run one of them, whatever its gate says."""
    from commands.demo.demo import run_demo

    run_demo(out, conversations)


@app.command("demo-audit")
def demo_audit(
    out: Annotated[Path, typer.Option(help="Where `qinglan demo` has put its run.")] = Path("runs/demo"),
) -> None:
    """Change one byte of what the demo's model came from, in a copy, and see it refused."""
    from commands.demo.demo import run_demo_audit

    run_demo_audit(out)


@app.command("demo-rollout")
def demo_rollout(
    out: Annotated[Path, typer.Option(help="Where `qinglan demo` has put its run.")] = Path("runs/demo"),
) -> None:
    """Roll the demo's model out once more: real servers on loopback, users who are played, the controller between."""
    from commands.demo.demo import run_demo_rollout

    run_demo_rollout(out)


PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""A server's own `python -m serving.NAME` reads its flags, --help among them."""


SERVERS = {
    "rag": ("serving.rag", "The RAG service on knowledge bases of this machine."),
    "teacher": ("standins.teacher", "The stand-in for the paid models, in OpenAI's protocol."),
    "rewriter": ("serving.rewriter", "The trained student, in KServe's protocol."),
    "style": ("serving.style", "The style model: in which manner an answer is given."),
    "gateway": ("serving.gateway", "The run's one way to the paid API: journal, budget, limits and cache."),
}


def _add_server(name: str, package: str, help_text: str) -> None:
    @serve.command(name, help=help_text, context_settings=PASSED_ON)
    def run_server(context: typer.Context) -> None:
        sys.argv = [f"qinglan serve {name}", *context.args]
        translate_argparse()
        import_module(f"{package}.__main__").main()


for _name, (_package, _help) in SERVERS.items():
    _add_server(_name, _package, _help)
