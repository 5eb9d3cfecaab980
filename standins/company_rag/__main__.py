"""python -m standins.company_rag --kb fivedoctors=kb.jsonl      prints {"company_rag": "http://127.0.0.1:8000"}"""

from pathlib import Path

from qinglan.errors import ConfigError
from qinglan.rag.lexical.index import Index, build_index
from serving.programs import exit_on_error
from standins.behaviour_options import options_parser, read_behaviour, serve
from standins.company_rag.app import CompanyRag, create_app
from standins.company_rag.behaviour import Behaviour


def main() -> None:
    parser = options_parser(
        "python -m standins.company_rag", "The stand-in for a company's own RAG service.", Behaviour, 8000
    )
    parser.add_argument("--kb", required=True, action="append", metavar="TENANT=PATH")
    parser.add_argument("--index-root", type=Path, required=True)
    arguments = parser.parse_args()
    with exit_on_error():
        behaviour = read_behaviour(arguments, Behaviour, "stand-in RAG service")
        service = CompanyRag(open_indexes(arguments.kb, arguments.index_root), behaviour)
        serve("company_rag", create_app(service), arguments)


def open_indexes(bases: list[str], root: Path) -> dict[str, Index]:
    indexes = {}
    for base in bases:
        tenant, equals, path = base.partition("=")
        if not (equals and path):
            raise ConfigError(f"--kb {base}: write TENANT=PATH.")
        indexes[tenant] = Index.open(build_index(Path(path), root, tenant))
    return indexes


if __name__ == "__main__":
    main()
