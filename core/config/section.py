"""What all sections of the config are made of: their base type, and quantities that several of them use."""

from typing import Annotated

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=1, le=65535)]
NonNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
GiB = Annotated[float, Meta(gt=0)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all config sections."""
