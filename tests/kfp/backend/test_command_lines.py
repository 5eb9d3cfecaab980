"""Every program of the back end is started on loopback, with its own account, beside one cluster."""

import re
from pathlib import Path

import pytest

from tests.cluster.plane.processes import Folder, Part
from tests.kfp.backend.build import Dist
from tests.kfp.backend.command_lines import ACCOUNTS, Ports, Setting, kubeconfig, member_token, parts
from tests.kfp.backend.objects import Store

WORD = re.compile(r"(?<![\d.])(0\.0\.0\.0|\[::\])")


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    dist = Dist(tmp_path / "dist")
    (dist.mariadb / "lib" / "x86_64-linux-gnu").mkdir(parents=True)
    store = Store("127.0.0.1:9000", "key", "secret")
    return Setting(Folder(tmp_path / "kfp"), dist, Ports(20001, 20002, 20003), store, tmp_path / "admin")


def words(part: Part) -> list[str]:
    return [*part.arguments, *part.settings.values()]


def test_nothing_listens_beyond_loopback(setting: Setting) -> None:
    each = parts(setting)

    assert not [word for part in each.values() for word in words(part) if WORD.search(word)]
    assert "--bind-address=127.0.0.1" in each["mariadb"].arguments
    assert "--httpPortFlag=127.0.0.1:8888" in each["apiserver"].arguments


def test_programs_act_as_accounts_of_their_own(setting: Setting) -> None:
    each = parts(setting)

    files = {name: each[name].settings["KUBECONFIG"] for name in ACCOUNTS}
    assert files == {name: str(kubeconfig(setting.folder, name)) for name in ACCOUNTS}
    assert len(set(files.values())) == len(ACCOUNTS)


def test_kfp_has_many_users_who_are_named_by_a_header(setting: Setting) -> None:
    settings = parts(setting)["apiserver"].settings

    assert (settings["MULTIUSER"], settings["KUBEFLOW_USERID_HEADER"]) == ("true", "kubeflow-userid")


def test_the_store_and_the_database_are_the_ones_that_were_given(setting: Setting) -> None:
    settings = parts(setting)["apiserver"].settings

    assert (settings["OBJECTSTORECONFIG_HOST"], settings["OBJECTSTORECONFIG_PORT"]) == ("127.0.0.1", "9000")
    assert settings["DBCONFIG_MYSQLCONFIG_PORT"] == "20001"


def test_the_agent_reads_a_token_in_the_folder_and_so_does_a_user(setting: Setting) -> None:
    token = Path(parts(setting)["persistence-agent"].settings["AGENT_TOKEN_FILE"])

    assert token.is_relative_to(setting.folder.root)
    assert member_token(setting.folder).is_relative_to(setting.folder.root)
