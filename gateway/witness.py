"""Says in the log when a target goes out of rotation and when it is back: once, by the worker that found out."""

from core.log import EventLogger


class LogWitness:
    """See `gateway.target_health.Witness`."""

    def __init__(self, log: EventLogger) -> None:
        self._log = log

    def ejected(self, target_id: str, because: str, for_s: float) -> None:
        self._log.warning("target_ejected", target=target_id, because=because, for_s=round(for_s, 1))

    def readmitted(self, target_id: str) -> None:
        self._log.info("target_readmitted", target=target_id)
