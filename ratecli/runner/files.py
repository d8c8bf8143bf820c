"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write `path` (text as UTF-8, line ends as they are) so that no reader ever sees half of it."""
    data = content.encode() if isinstance(content, str) else content
    # In the same folder, since a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
