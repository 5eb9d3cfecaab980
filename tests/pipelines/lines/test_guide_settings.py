"""A tenant that the project has never heard of: two settings, as the guide shows them, are enough for a plan.

test_new_tenant_run.py runs the whole line with them.
"""

from pathlib import Path

import pytest

from tests.commands.demo.new_tenant_run import acme, guide_settings, qinglan

pytestmark = pytest.mark.usefixtures("forks")


@pytest.mark.slow
def test_both_guides_show_the_same_two_settings_and_a_plan_takes_them(tmp_path: Path) -> None:
    settings = guide_settings()
    plan = qinglan(["plan", *acme(tmp_path, settings)], tmp_path)

    assert settings == guide_settings("docs/guide.zh.md")
    assert set(settings) == {"generate", "convert"}
    assert all(set(values) == {"system_prompt"} for values in settings.values())
    assert plan.code == 0, plan.errors
    assert plan.record["promotion"]["possible"] is False
