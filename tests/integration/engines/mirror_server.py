"""A web server on loopback that gives a folder out as it is, lists folders as pages, and misbehaves when it is told."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from tests.integration.engines.file_server import FileServer, message


@dataclass
class MirrorServer(FileServer):
    """What it serves, and how it misbehaves besides."""

    folder: Path
    _: KW_ONLY
    lists: bool = True
    """Whether it lists a folder; otherwise it gives the folder's `index.html`."""
    garbage: bytes = b""
    """Said instead of every answer."""

    def read_path(self, target: str) -> str:
        return unquote(target.partition("?")[0])

    def reply(self, path: str, head: str) -> bytes:
        if self.garbage:
            return self.garbage
        place = self.folder / path.strip("/")
        if place.is_dir() and not self.lists:
            place = place / "index.html"
        if place.is_dir():
            links = "".join(f'<a href="{quote(each.name)}">{each.name}</a>\n' for each in sorted(place.iterdir()))
            page = f"<!DOCTYPE html><html><body>{links}</body></html>"
            return message("200 OK", page.encode(), kind="text/html")
        if not place.is_file():
            return message("404 Not Found", b"nothing")
        kind = "text/html" if place.name == "index.html" else "application/octet-stream"
        return self.file(place.read_bytes(), head, kind)
