"""The files that `ratecli init` writes: one for each family of goals."""

from __future__ import annotations

from pathlib import Path

DEFAULT_TEMPLATE = "quickstart"
_FOLDER = Path(__file__).with_name("starters")


def template_text(template: str = DEFAULT_TEMPLATE) -> str:
    """Return a commented experiment that runs offline in seconds.

    `template` is one of `template_summaries`.
    """
    return (_FOLDER / f"{template}.yaml").read_text(encoding="utf-8")


def template_summaries() -> dict[str, str]:
    """Return the summary of each template by name, the default first."""
    names = sorted((path.stem for path in _FOLDER.glob("*.yaml")), key=_template_rank)
    return {name: template_text(name).partition("\n")[0].removeprefix("# ") for name in names}


def _template_rank(name: str) -> tuple[bool, str]:
    return name != DEFAULT_TEMPLATE, name
