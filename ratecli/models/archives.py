"""Archives that could take more memory than they have bytes."""

from __future__ import annotations

import io
import zipfile


class ZipBombError(ValueError):
    """A zip archive that is more than itself."""


def reject_zip_bomb(blob: bytes) -> None:
    """Raises BombError for a zip archive that is compressed, or has bytes that count more than once.

    What we write is neither, so that nothing takes more memory than the file has bytes; BadZipFile and
    the like for what is no zip archive.
    """
    with zipfile.ZipFile(io.BytesIO(blob)) as archive:
        parts = archive.infolist()
    if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
        raise ZipBombError("it is compressed, and what a run writes is not")
    if sum(part.file_size for part in parts) > len(blob):
        raise ZipBombError("it says it holds more than it does")
