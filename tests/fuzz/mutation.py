"""Valid inputs made slightly wrong: cut, doubled, overwritten, spliced with each other and with words that matter.

Seeded, so that a failure can be had again, and the same by default, so that a change is not blamed for what was there
before it: `LLMGW_FUZZ_SEED=N`, or `random` to find something new. How long each target is tried is `LLMGW_FUZZ_S`.
"""

import os
import random
import time
from collections.abc import Callable, Sequence

BUDGET_S = float(os.environ.get("LLMGW_FUZZ_S") or 1.0)
_asked_seed = os.environ.get("LLMGW_FUZZ_SEED") or "1"
SEED = random.SystemRandom().randrange(1, 1 << 32) if _asked_seed == "random" else int(_asked_seed)
_SHOWN_BYTES = 2000


class Mutator:
    """Draws inputs."""

    def __init__(self, chance: random.Random, samples: Sequence[bytes], words: Sequence[bytes]) -> None:
        self.chance = chance
        self._samples = samples
        self._words = (
            *words,
            b"",
            b"\0",
            b"\xff",
            b"\n",
            b"\r\n",
            b" ",
            b"\t",
            b"0",
            b"-1",
            b"9" * 30,
            "é\u2028".encode(),
        )

    def draw(self) -> bytes:
        """A sample with a few wounds; now and then with none."""
        data = self.chance.choice(self._samples)
        for _ in range(self.chance.choice((0, 1, 1, 1, 2, 3, 8))):
            data = self._wound(data)
        return data

    def cuts(self, data: bytes) -> list[bytes]:
        """The same bytes in pieces."""
        count = self.chance.choice((1, 1, 2, 5, len(data)))
        places = sorted(self.chance.randrange(len(data) + 1) for _ in range(count))
        return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]

    def _wound(self, data: bytes) -> bytes:
        chance = self.chance
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((0, 1, 1, 2, 4, 16, 200)))
        kind = chance.randrange(6)
        if kind == 0:  # cut out
            return data[:at] + data[end:]
        if kind == 1:  # double
            return data[:end] + data[at:end] * chance.choice((1, 1, 3, 50)) + data[end:]
        if kind == 2:  # a word that matters
            return data[:at] + chance.choice(self._words) + data[chance.choice((at, end)) :]
        if kind == 3 and data:  # one bit
            at = min(at, len(data) - 1)
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        if kind == 4:  # a piece of another
            other = chance.choice(self._samples)
            begin = chance.randrange(len(other) + 1)
            return data[:at] + other[begin : begin + chance.choice((1, 10, 100))] + data[end:]
        return data[:at]


def fuzz(name: str, samples: Sequence[bytes], words: Sequence[bytes], check: Callable[[bytes, Mutator], None]) -> int:
    """Try `check` for the time that there is; the number of inputs. Raises: AssertionError with seed and input."""
    chance = random.Random(f"{SEED}:{name}")
    mutator = Mutator(chance, samples, words)
    end = time.monotonic() + BUDGET_S
    tried = 0
    while tried < 20 or time.monotonic() < end:
        data = mutator.draw()
        state = chance.getstate()
        try:
            check(data, mutator)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
            chance.setstate(state)
            where = f"input {tried} of {name}, LLMGW_FUZZ_SEED={SEED}"
            raise AssertionError(f"{where}: {error!r}\n{data[:_SHOWN_BYTES]!r}") from error
        tried += 1
    return tried
