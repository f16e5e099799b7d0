"""Which model a request means, if its key may use it. Pure."""

from msgspec.structs import replace

from core.api import RouteModel
from gateway.errors import model_not_allowed, unknown_model
from gateway.grant import Grant
from gateway.table import Lookup, ModelEntry


def find_model(lookup: Lookup, grant: Grant, asked: str) -> ModelEntry:
    """The model of this id or alias. Raises: ApiError.

    A key for some models learns nothing about the others: what it may not use is refused alike, be it there or not.
    """
    entry = lookup.models.get(asked)
    if grant.models is not None and not grant.allows(asked, entry.model.id if entry is not None else asked):
        raise model_not_allowed(asked)
    if entry is None:
        raise unknown_model(asked)
    return entry


def list_visible(lookup: Lookup, grant: Grant) -> tuple[RouteModel, ...]:
    """The models that are shown to the key's owner, under the names by which the key may use them."""
    if grant.models is None:
        return lookup.listed
    return tuple(replace(model, id=name) for model in lookup.listed for name in names_for(grant, model))


def names_for(grant: Grant, model: RouteModel) -> tuple[str, ...]:
    """What the key's owner may call the model: its id, or, where only they are for this key, its aliases."""
    if grant.allows(model.id, model.id):
        return (model.id,)
    return tuple(alias for alias in model.aliases if grant.allows(alias, alias))
