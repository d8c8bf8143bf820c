"""Packages as an installer leaves them: modules, and a folder that lists the entry points."""

from collections.abc import Mapping
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "ratecli-example-plugin"


def install(
    site: Path,
    package: str,
    entries: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str] | None = None,
    version: str = "1.0",
) -> None:
    """Write a package into the folder `site`: entry points by group, modules by name."""
    info = site / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = []
    for group, names in entries.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in names.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for name, text in (modules or {}).items():
        (site / f"{name}.py").write_text(text)
