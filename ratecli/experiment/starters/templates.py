"""The starter files of `ratecli init` for families of goals, which run as they are."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
DEFAULT_TEMPLATE = "quickstart"


def template_text(template: str = DEFAULT_TEMPLATE) -> str:
    """Return a commented experiment that runs offline in seconds, for one family of goals."""
    return (FOLDER / f"{template}.yaml").read_text(encoding="utf-8")


def template_summaries() -> dict[str, str]:
    """Return the summary of each template by name, the default first."""
    names = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    names.sort(key=lambda name: name != DEFAULT_TEMPLATE)
    return {name: template_text(name).partition("\n")[0].removeprefix("# ") for name in names}
