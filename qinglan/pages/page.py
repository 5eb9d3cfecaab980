"""Renders the HTML page of every report. It has no script, fetches nothing, and every text in it is escaped.

An invisible character in a text, for example one that reverses the order of letters, is shown as its code.

{% extends "page.html.j2" %}{% block body %}<h2>{{ "Steps"|t }}</h2><p>{{ report.lead|t }}</p>...{% endblock %}
render_page(Path(__file__).parent / "report.html.j2", headline="Hold", ...)
"""

from pathlib import Path
from typing import Any

from qinglan.terminal import visible_lines


def render_page(template: Path, headline: str, **values: Any) -> str:
    """Render a template with these values, in the person's language. A name without a value raises an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    from qinglan.messages import reads_chinese, translated

    def shown(value: Any) -> Any:
        return visible_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    # `finalize` gets each value before it is escaped. Markup is the template's own HTML and is not changed.
    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["t"] = translated
    language = "zh-CN" if reads_chinese() else "en"
    return environment.get_template(template.name).render(headline=translated(headline), language=language, **values)
