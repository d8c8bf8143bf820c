"""Files whose published checksum is not known here: they count once the user vouches for them.

A file SHA256SUMS beside them, lines as `sha256sum` writes them, says which bytes are meant. It may be
there before the files are: then they are verified as any other.
"""

from __future__ import annotations

import re
from pathlib import Path

from ratecli.datasets.source import RemoteFile
from ratecli.errors import Diagnostic

CHECKSUM_FILE = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def read_vouched_checksums(folder: Path) -> dict[str, str]:
    """sha256 by name of the file, as far as SHA256SUMS in `folder` is there and says so."""
    try:
        lines = (folder / CHECKSUM_FILE).read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = (_LINE.fullmatch(line.strip()) for line in lines)
    return {line.group(2): line.group(1).lower() for line in found if line}


def unvouched_file_error(file: RemoteFile, path: Path, sha256: str) -> Diagnostic:
    """The E403 for a file that is there and that nobody has vouched for."""
    message = f"'{path}' cannot be verified: its published sha256 is not known to ratecli"
    way = (
        f"fetched from {file.url}; if you trust it, add this line to {path.parent / CHECKSUM_FILE}: "
        f"{sha256}  {file.name}"
    )
    return Diagnostic("E403", message, way)
