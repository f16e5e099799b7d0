"""Says in the log when a target goes out of rotation and when it is back: once, by the worker that found out."""

from core.log import EventLogger
from gateway.target_health import Witness


class LogWitness:
    """See `gateway.target_health.Witness`; tells the next one, too."""

    def __init__(self, log: EventLogger, following: Witness) -> None:
        self._log = log
        self._following = following

    def failed(self, target_id: str, because: str) -> None:
        self._following.failed(target_id, because)

    def ejected(self, target_id: str, because: str, for_s: float, detail: str) -> None:
        facts = {"detail": detail} if detail else {}
        self._log.warning("target_ejected", target=target_id, because=because, for_s=round(for_s, 1), **facts)
        self._following.ejected(target_id, because, for_s, detail)

    def readmitted(self, target_id: str) -> None:
        self._log.info("target_readmitted", target=target_id)
        self._following.readmitted(target_id)
