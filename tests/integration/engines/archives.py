"""Makes the compressed tar archives that projects publish."""

import gzip
import io
import tarfile


def an_archive(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    """An archive with these files, programs among them, and links; the same ones make the same bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w:") as archive,
    ):
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755 if data.startswith(b"#!") else 0o644
            archive.addfile(info, io.BytesIO(data))
        for name, to in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, to
            archive.addfile(info)
    return packed.getvalue()
