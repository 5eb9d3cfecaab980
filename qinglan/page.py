"""The one page that reports are written on: self-contained, no script, nothing fetched, every text escaped.

What nobody would see in a text, such as a sign that turns the order of letters, stands there as its code.

{% extends "page.html.j2" %}{% block body %}<section>...</section>{% endblock %}
rendered(Path(__file__).parent / "report.html.j2", headline="Hold", ...)
"""

from pathlib import Path
from typing import Any

from qinglan.terminal import visible_lines


def render_page(template: Path, headline: str, **values: Any) -> str:
    """The page that the template makes of the values; a name that it lacks is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        return visible_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]), autoescape=True, finalize=shown,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template.name).render(headline=headline, **values)
