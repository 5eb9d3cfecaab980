"""Every program of the back end is started on loopback, with its own account, beside one cluster."""

import re
from pathlib import Path

import pytest

from tests.cluster.plane.processes import Folder
from tests.kfp.backend.build import Dist
from tests.kfp.backend.command_lines import ACCOUNTS, Ports, Setting, kubeconfig, parts
from tests.kfp.backend.objects import Store

WORD = re.compile(r"(?<![\d.])(0\.0\.0\.0|\[::\])")


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    dist = Dist(tmp_path / "dist")
    (dist.mariadb / "lib" / "x86_64-linux-gnu").mkdir(parents=True)
    store = Store("127.0.0.1:9000", "key", "secret")
    return Setting(Folder(tmp_path / "kfp"), dist, Ports(20001, 20002, 20003), store, tmp_path / "admin")


def test_nothing_listens_beyond_loopback(setting: Setting) -> None:
    each = parts(setting)

    words = [word for part in each.values() for word in (*part.arguments, *part.settings.values())]
    assert not list(filter(WORD.search, words))
    assert "--bind-address=127.0.0.1" in each["mariadb"].arguments
    assert "--httpPortFlag=127.0.0.1:8888" in each["apiserver"].arguments


def test_programs_act_as_accounts_of_their_own(setting: Setting) -> None:
    each = parts(setting)

    files = {name: each[name].settings["KUBECONFIG"] for name in ACCOUNTS}
    assert files == {name: str(kubeconfig(setting.folder, name)) for name in ACCOUNTS}
    assert len(set(files.values())) == len(ACCOUNTS)
