"""Provenance of a run: versions, machine, commit and data."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ratecli.version import __version__

NUMERIC_PACKAGES = ("numpy", "scipy", "scikit-learn")
"""Libraries whose version may change a trial's numbers."""


def code_versions() -> dict[str, str]:
    """Return the versions that are part of every trial's key."""
    return {"ratecli": __version__} | {name: _version(name) for name in NUMERIC_PACKAGES}


@cache
def _version(name: str) -> str:
    """Return a package's version, cached because reading it takes a file access."""
    return metadata.version(name)


def build_manifest(
    *,
    data: Mapping[str, Any],
    command: Sequence[str],
    started: datetime,
    ended: datetime | None,
    folder: Path,
    deployed_model: bytes | None = None,
    plugins: Sequence[Mapping[str, str]] = (),
    models: Mapping[str, str] = {},
) -> dict[str, Any]:
    """Return the manifest stored with the results.

    `data` holds the digests; `folder` may be in a Git repository. `deployed_model` is the stored
    classifier that the run compares with; `plugins` lists the plugins in use with their versions,
    and `models` the versions of other packages whose models are fitted.
    Environment variables are not recorded, since they may hold secrets.
    """
    return {
        "command": list(command),
        "started": _utc(started),
        "ended": _utc(ended) if ended else None,
        "versions": code_versions() | {"pandas": _version("pandas"), **models},
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "git": _git_state(folder),
        "data": dict(data),
        "plugins": [dict(each) for each in plugins],
        "deployed_model": {"sha256": hashlib.sha256(deployed_model).hexdigest()}
        if deployed_model
        else None,
    }


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit checked out in `folder`, and whether tracked files differ from it."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    """Return Git's output, or None if it fails.

    Variables such as GIT_DIR (set inside hooks) would redirect Git to another repository, and the
    repository's own settings may name a program that watches its files.
    """
    environment = {name: v for name, v in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments]
    try:
        answer = subprocess.run(  # noqa: S603  a fixed program, no shell
            command, env=environment, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
