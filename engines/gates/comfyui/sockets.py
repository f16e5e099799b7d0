"""The callers' websockets: who hears of which prompt, and how much may wait for a caller that reads slowly.

A socket hears of its caller's prompts only: of those that were brought under the name that it gave itself (`clientId`),
or of all when it gave none. Nothing here waits: a message is put into the mailboxes that it is for. There the newest
preview takes the place of the one before it; a caller for whom too much waits all the same is hung up on.
"""

import asyncio
from collections import deque
from collections.abc import Iterator

from core.errors import RefusedError, UnavailableError
from engines.gates.comfyui.jobs import Job, JobRecord
from engines.gates.comfyui.telling import Preview, retell, tell_end, tell_status

MAX_OF_CALLER = 32
MAX_SOCKETS = 500
_MAX_MESSAGES = 5000
_MAX_CHARACTERS = 1 << 20


class TooManySockets(RefusedError):
    """The caller has enough open."""

    code = "too_many_sockets"


class GateSocketsFull(UnavailableError):
    """All callers together have as many as the gate takes."""

    code = "sockets_full"


class Mailbox:
    """What waits for one socket."""

    def __init__(self, caller: str, client: str) -> None:
        self.caller = caller
        self.client = client
        """The name that the caller gave it; empty: none."""
        self._texts: deque[str] = deque()
        self._characters = 0
        self._preview: bytes | None = None
        self._more = asyncio.Event()
        self.overrun = asyncio.Event()
        """More waited than a caller may leave unread: nothing is put in any more."""

    def hears_of(self, record: JobRecord) -> bool:
        return record.caller == self.caller and self.client in ("", record.client)

    def put(self, text: str) -> None:
        if self.overrun.is_set():
            return
        self._texts.append(text)
        self._characters += len(text)
        if len(self._texts) > _MAX_MESSAGES or self._characters > _MAX_CHARACTERS:
            self._texts.clear()
            self._preview = None
            self.overrun.set()
        self._more.set()

    def show(self, frame: bytes) -> None:
        if not self.overrun.is_set():
            self._preview = frame
            self._more.set()

    def drop_preview(self) -> None:
        self._preview = None

    async def take(self) -> str | bytes:
        """The next message; texts before a picture."""
        while True:
            if self._texts:
                text = self._texts.popleft()
                self._characters -= len(text)
                return text
            preview, self._preview = self._preview, None
            if preview is not None:
                return preview
            self._more.clear()
            await self._more.wait()


class Sockets:
    """See the module."""

    def __init__(self) -> None:
        self._boxes: set[Mailbox] = set()

    def __len__(self) -> int:
        return len(self._boxes)

    def open(self, caller: str, client: str) -> Mailbox:
        """Raises: TooManySockets, GateSocketsFull."""
        if sum(box.caller == caller for box in self._boxes) >= MAX_OF_CALLER:
            raise TooManySockets(f"{MAX_OF_CALLER} websockets of yours are open already", hint="close one")
        if len(self._boxes) >= MAX_SOCKETS:
            raise GateSocketsFull(f"{MAX_SOCKETS} websockets are open here", hint="ask /progress/{id}, or later")
        box = Mailbox(caller, client)
        self._boxes.add(box)
        return box

    def close(self, box: Mailbox) -> None:
        self._boxes.discard(box)

    def pass_on(self, job: Job, kind: str, node: str, text: str) -> None:
        """What ComfyUI said of a prompt that is not over."""
        if kind == "executed":
            job.told_outputs.add(node)
        boxes = list(self._of(job))
        said = retell(kind, text) if boxes else ""
        for box in boxes if said else ():
            box.put(said)

    def show(self, job: Job, preview: Preview) -> None:
        for box in self._of(job):
            box.show(preview.frame)

    def ended(self, job: Job) -> None:
        """A prompt is over, its record says how, and its results can be asked for."""
        for box in self._of(job):
            box.drop_preview()
            for text in tell_end(job):
                box.put(text)
        job.told_outputs = set()

    def tell_queue(self, caller: str, open_prompts: int) -> None:
        """The caller has so many prompts that are not over."""
        for box in self._boxes:
            if box.caller == caller:
                box.put(tell_status(open_prompts))

    def _of(self, job: Job) -> Iterator[Mailbox]:
        return (box for box in self._boxes if box.hears_of(job.record))
