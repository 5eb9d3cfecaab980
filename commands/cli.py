"""The command `qinglan`. Everything heavy is imported inside a command, so that --help answers at once.

Exit codes: 0 done, 1 unexpected, 2 configuration or command, 3 data, 4 outage, 5 budget, 6 training,
7 held or not promoted, 8 altered, 9 incomplete, 130 stopped by Ctrl-C, 143 stopped by SIGTERM.
"""

import asyncio
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from commands.audit.cli import audit
from commands.blind import blind
from commands.check_rag.cli import check_rag
from commands.compare_teachers.cli import compare_teachers
from commands.compile import compile_
from commands.demo.cli import demo, demo_audit, demo_rollout
from commands.doctor.cli import doctor
from commands.fit import fit
from commands.headroom.cli import headroom
from commands.help_language import run_app
from commands.init.cli import init
from commands.keys import keys
from commands.plan.cli import plan
from commands.prepay.cli import prepay
from commands.rollout.cli import rollout
from commands.run.cli import run
from commands.sample import sample
from commands.serve import serve
from commands.style import style
from commands.submit import cancel, follow, submit
from commands.why.cli import why
from pipelines.execute.interrupts import TERMINATED, TerminatedCommand, end_at_sigterm, interrupted
from qinglan.terminal import in_language, quoted, say, say_error, say_warnings, use_language

EXIT_CODES = (
    "Exit codes: 0 done; 1 unexpected error; 2 configuration or command; 3 wrong data; "
    "4 something we depend on gave no answer; 5 the budget would be passed; 6 a training that stopped; "
    "7 the gate says hold, or a canary was not promoted; 8 an audit found something altered; 9 or something missing; "
    "130 stopped by Ctrl-C; 143 stopped by SIGTERM."
)

DEBUG = "QINGLAN_DEBUG"


class InterruptibleGroup(TyperGroup):
    """Command group that reports Ctrl-C and SIGTERM, because typer itself ends silently."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise interrupted(sys.argv[1:]) from error
        except (SystemExit, asyncio.CancelledError) as error:  # at SIGTERM, an event loop raises CancelledError
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
app.add_typer(serve, name="serve")
app.add_typer(style, name="style")
app.add_typer(keys, name="keys")
app.add_typer(rollout, name="rollout")
app.command()(init)
app.command()(audit)
app.command("compare-teachers")(compare_teachers)
app.command()(fit)
app.command()(headroom)
app.command("check-rag")(check_rag)
app.command()(doctor)
app.command()(submit)
app.command()(follow)
app.command()(cancel)
app.command()(sample)
app.command()(plan)
app.command()(run)
app.command()(prepay)
app.command()(why)
app.command()(blind)
app.command("compile")(compile_)
app.command()(demo)
app.command("demo-audit")(demo_audit)
app.command("demo-rollout")(demo_rollout)


def main() -> None:
    """Run the command. A known error is printed as a message, without a traceback, and sets the exit code."""
    for stream in (sys.stdout, sys.stderr):  # a letter that the terminal cannot show must not raise an error
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    serves = sys.argv[1:2] == ["serve"]
    if not serves:  # a server sets up its own logging, which is English
        say_warnings()
    if not serves or sys.stderr.isatty() or "--help" in sys.argv:  # without a terminal, a server's lines are a log
        use_language()
    end_at_sigterm()
    try:
        sys.exit(run_app(app))
    except typer.TyperException as error:
        use_language()
        _explain_usage(error)
    except KeyboardInterrupt:  # before the command began
        _explain(interrupted(sys.argv[1:]))
    except Exception as error:
        _explain(error)


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help=f"Show an error's causes as a traceback; {DEBUG}=1 does the same.")
    ] = False,
) -> None:
    if debug:
        os.environ[DEBUG] = "1"  # also for child processes


def _explain_usage(error: typer.TyperException) -> NoReturn:
    """Print a usage error with a hint at --help, and exit. The error may quote untrusted text."""
    context = getattr(error, "ctx", None)
    if message := error.format_message():  # empty if a group without a command has printed its help
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
