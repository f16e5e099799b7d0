"""The base of everything that goes over a wire of ours."""

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """Base of all wire messages: frozen, camelCase, unknown fields ignored."""
