"""The example plugin under docs/examples, installed and run in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import pytest
from plugged import EXAMPLE, install
from small import environment, process


def entry_points():
    """Those that the example's pyproject.toml declares."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    return project["name"], project["version"], project["entry-points"]


def example(tmp_path):
    """The environment of a process in which the example is installed."""
    package, version, entries = entry_points()
    install(tmp_path / "site", package, entries, version=version)
    paths = [str(EXAMPLE), str(tmp_path / "site"), *filter(None, [environment().get("PYTHONPATH")])]
    return environment(PYTHONPATH=":".join(paths))


def test_the_example_is_found_and_recorded(tmp_path):
    package, version, _ = entry_points()
    quick = ("--executor", "serial", "--set", "seeds=1")
    command = ("run", EXAMPLE / "experiment.yaml", "-o", tmp_path / "out", *quick)
    done = process(*command, env=example(tmp_path))
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out" / "plugged-in"
    manifest = json.loads((folder / "manifest.json").read_text())
    known = [each["name"] for each in manifest["plugins"]]
    assert sorted(known) == ["housing", "informedness", "random_cuts", "withdrawn"]
    for each in manifest["plugins"]:
        assert (each["package"], each["version"]) == (package, version)
    summary = (folder / "summary.csv").read_text()
    assert "random_cuts" in summary


@pytest.mark.slow
def test_workers_know_plugins_and_stored_trials_are_found_again(tmp_path):
    env = example(tmp_path)
    command = ("run", EXAMPLE / "experiment.yaml", "-o", tmp_path / "out", "--jobs", "2")
    assert "4 run now" in process(*command, env=env).stdout
    assert "nothing to run, all were stored" in process(*command, env=env).stdout


@pytest.mark.slow
def test_the_installed_example_passes_the_kit_and_its_own_tests(tmp_path):
    env = example(tmp_path)
    done = process("test-plugin", entry_points()[0], env=env)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("all checks passed") == 4
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, cwd=EXAMPLE
    )
    assert "3 passed" in done.stdout
