"""`qinglan serve NAME`: start one of the servers."""

import sys
from importlib import import_module

import typer

from commands.help_language import translate_argparse

serve = typer.Typer(help="Run one of the servers on this machine.", no_args_is_help=True)

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a command that hands all its options, --help included, to the server's own parser."""


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
