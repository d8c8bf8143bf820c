import json
import subprocess
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

import ratecli
from ratecli.ledger.provenance import build_manifest, code_versions

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def manifest(folder):
    ended = NOON.astimezone(timezone(timedelta(hours=5))) + timedelta(seconds=90)
    more = {"data": {"adult": "ab12"}, "command": ["ratecli", "run", "a.yaml"], "folder": folder}
    return json.loads(json.dumps(build_manifest(started=NOON, ended=ended, **more)))


def git(folder, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "a.yaml").write_text("name: a\n")
    git(tmp_path, "add", "a.yaml")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_versions_data_command_and_times_are_recorded_but_no_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    record = manifest(tmp_path)
    assert "hunter2" not in json.dumps(record)
    assert record["versions"]["ratecli"] == ratecli.__version__
    assert record["versions"]["numpy"] == np.__version__
    assert set(record["versions"]) == {*code_versions(), "pandas"}
    assert record["data"] == {"adult": "ab12"}
    assert record["command"] == ["ratecli", "run", "a.yaml"]
    assert record["started"] == "2026-03-01T12:00:00Z"
    assert record["ended"] == "2026-03-01T12:01:30Z"
    assert record["cpus"] >= 1


def test_commit_and_uncommitted_changes_are_recorded(repository, tmp_path_factory, monkeypatch):
    commit = git(repository, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path_factory.mktemp("elsewhere")))  # as Git hooks do
    (repository / "untracked.csv").touch()
    assert manifest(repository)["git"] == {"commit": commit, "dirty": False}
    (repository / "a.yaml").write_text("name: b\n")
    assert manifest(repository)["git"] == {"commit": commit, "dirty": True}


def test_without_commits_a_repository_or_git_no_commit_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert manifest(tmp_path)["git"] is None
    git(tmp_path, "init", "-q")
    assert manifest(tmp_path)["git"] is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert manifest(tmp_path)["git"] is None
