"""The files that `ratecli init` writes: one a family of goals."""

from __future__ import annotations

from pathlib import Path

FIRST = "quickstart"
_FOLDER = Path(__file__).with_name("starters")


def starter(template: str = FIRST) -> str:
    """A commented experiment that runs offline in seconds; `template` is one of `templates`."""
    return (_FOLDER / f"{template}.yaml").read_text(encoding="utf-8")


def templates() -> dict[str, str]:
    """What each file is about, by its name; the first is the default."""
    names = sorted((path.stem for path in _FOLDER.glob("*.yaml")), key=_rank)
    return {name: starter(name).partition("\n")[0].removeprefix("# ") for name in names}


def _rank(name: str) -> tuple[bool, str]:
    return name != FIRST, name
