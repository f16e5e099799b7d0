"""Keeps glibc from returning and fetching the memory of large bodies all the time.

By default every buffer over 128 KiB is mapped and unmapped anew, and the kernel clears its pages each time: with
bodies of 2 MB (images) that is half of a request's cost. The price is memory that stays with the process.
"""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_TRIM_BYTES = 64 << 20
_MMAP_BYTES = 32 << 20
"""The largest that glibc takes (HEAP_MAX_SIZE / 2)."""


def keep_freed_memory() -> bool:
    """Set both thresholds for this process; False where the C library has no `mallopt` (musl)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)) and bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES))
