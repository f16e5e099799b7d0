"""What the shell offers where a command takes a name: engines, their versions and variants, builds, runtimes.

click asks these functions for the completion in `packaging/completions`. They read files alone, so that a Tab never
waits for a daemon, and offer nothing where something is wrong: the shell is not the place to say it.
"""

from collections.abc import Callable, Iterable

import click

from cli.machine_hardware import config_or_defaults, engines_directory
from cli.session import Session
from core.errors import LlmgwError
from engines.builds import list_builds, list_engines
from engines.digests import recipe_for
from engines.plan import select_builds
from engines.recipe import recipe_names


def engines_to_install(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Engines that llmgw knows builds of."""
    return _offer(recipe_names, incomplete)


def engines_here(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Engines that a build of is installed."""
    return _offer(lambda: list_engines(engines_directory(_session(context))), incomplete)


def versions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Of the engine that is named before, and of the variant where one is."""

    def known() -> Iterable[str]:
        recipe = recipe_for(_engine(context), config_or_defaults(_session(context)))
        return (build.version for build in select_builds(recipe, variant=_given(context, "variant")).builds)

    return _offer(known, incomplete)


def variants(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Of the engine that is named before, and of the version where one is."""

    def known() -> Iterable[str]:
        recipe = recipe_for(_engine(context), config_or_defaults(_session(context)))
        return (build.variant for build in select_builds(recipe, version=_given(context, "version")).builds)

    return _offer(known, incomplete)


def builds_here(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Installed builds of the engine that is named before."""
    folder = engines_directory(_session(context))
    return _offer(lambda: (build.name for build in list_builds(_engine(context), folder)), incomplete)


def runtimes_here(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Runtimes of the config."""
    return _offer(lambda: config_or_defaults(_session(context)).runtimes, incomplete)


def _offer(known: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    """Those that begin so, each once; nothing has no name to offer."""
    try:
        return [name for name in dict.fromkeys(known()) if name and name.startswith(incomplete)]
    except (LlmgwError, OSError):
        return []


def _session(context: click.Context) -> Session:
    return context.ensure_object(Session)


def _given(context: click.Context, name: str) -> str:
    return str(context.params.get(name) or "")


def _engine(context: click.Context) -> str:
    # An option whose value is being completed ends click's parsing before the arguments have their names.
    return _given(context, "name") or next(iter(context.args), "")
