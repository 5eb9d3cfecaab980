"""The one page that reports are written on: self-contained, no script, nothing fetched, every text escaped.

{% extends "page.html.j2" %}{% block body %}<section>...</section>{% endblock %}
rendered(Path(__file__).parent / "report.html.j2", headline="Hold", ...)
"""

from pathlib import Path
from typing import Any


def rendered(template: Path, headline: str, **values: Any) -> str:
    """The page that the template makes of the values; a name that it lacks is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template.name).render(headline=headline, **values)
