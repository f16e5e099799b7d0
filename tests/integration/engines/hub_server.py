"""A stand-in for Hugging Face on loopback: its API, its redirects to a store, ranges, and connections that break."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from tests.integration.engines.file_server import FileServer, message

COMMIT = "c0ffee" + "0" * 34


@dataclass
class HubServer(FileServer):
    """What it serves, and to whom."""

    files: Mapping[str, bytes]
    _: KW_ONLY
    token: str = ""
    commit: str = COMMIT

    def reply(self, path: str, head: str) -> bytes:
        if self.token and not path.startswith("/store/") and f"Bearer {self.token}" not in head:
            return message("401 Unauthorized", b"{}")
        if path.startswith("/api/models/org/model/revision/"):
            return message("200 OK", self._api())
        if path.startswith("/org/model/resolve/"):
            return message("302 Found", b"", f"Location: /store/{path.split('/', 5)[5]}\r\n")
        if path.startswith(("/store/", "/archives/")) and path.split("/", 2)[2] in self.files:
            return self.file(self.files[path.split("/", 2)[2]], head)
        return message("404 Not Found", b"{}")

    def _api(self) -> bytes:
        siblings = []
        for name, data in self.files.items():
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            entry: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": git}
            if name.endswith((".safetensors", ".gguf")):
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            siblings.append(entry)
        return json.dumps({"sha": self.commit, "siblings": siblings, "gated": False}).encode()
