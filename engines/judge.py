"""What only the engines know to be wrong with a config's runtimes. Pure; the daemon and `llmgw config check` ask it."""

from core.config.names import no_such
from core.config.problem import Problem
from core.config.schema import Config, Model, Runtime
from core.errors import LlmgwError
from engines.digests import MADE_OF_ARCHIVES, digests_in, file_names, is_archive
from engines.mirror import judge_mirrors
from engines.policy import check_args, check_env
from engines.recipe import load_recipe
from engines.registry import get_adapter, names
from engines.sources import HubSource, PackageSource, PathSource, WebSource, parse_source


def judge_runtimes(config: Config) -> list[Problem]:
    """Unknown engines, refused arguments and environment, weights that cannot be named so, misplaced adapters."""
    problems = [
        problem for name, runtime in config.runtimes.items() for problem in _judge_runtime(f"runtimes.{name}", runtime)
    ]
    for index, model in enumerate(config.models):
        for place in model.places() if model.adapter else ():
            runtime = config.runtimes.get(place.runtime)
            if runtime is not None and runtime.engine in names():
                problems += _judge_adapter(f"models[{index}]", place.upstream_model or model.id, model, runtime)
    problems += _judge_archives(config)
    return list(dict.fromkeys(problems))


def _judge_archives(config: Config) -> list[Problem]:
    """Digests of archives that no build is made of, and places that none is fetched from."""
    problems = []
    for engine in MADE_OF_ARCHIVES:
        recipe = load_recipe(engine)
        problems += [
            Problem(f"engines.{engine}.digests", no_such("archive", name, file_names(recipe)))
            for name in digests_in(engine, config)
            if not is_archive(recipe, name)
        ]
    return problems + judge_mirrors(config)


def _judge_adapter(path: str, name: str, model: Model, runtime: Runtime) -> list[Problem]:
    api = get_adapter(runtime.engine).lora_api
    if api is None:
        able = ", ".join(name for name in names() if get_adapter(name).lora_api is not None)
        hint = f"{able} can"
        return [Problem(f"{path}.adapter", f"{runtime.engine} loads no adapters while it serves", hint=hint)]
    problems = _judge_source(f"{path}.adapter", model.adapter)
    if not problems and _is_one_file(parse_source(model.adapter)):
        hint = "hf:ORG/REPO, or the absolute path of a folder"
        problems.append(Problem(f"{path}.adapter", f"is one file; {runtime.engine} takes a folder", hint=hint))
    if name in [fixed.partition("=")[0].strip() for fixed in str(runtime.options.get("lora", "")).split(",")]:
        hint = "options.lora of its runtime has one of that name"
        problems.append(Problem(f"{path}.id", f"the adapter {name} is loaded at the start already", hint=hint))
    if api.asked_with_base and ":" in name:
        hint = "set upstreamModel to a name without one"
        problems.append(Problem(f"{path}.id", f"{runtime.engine} cannot be asked for a name with a colon", hint=hint))
    return problems


def _judge_runtime(path: str, runtime: Runtime) -> list[Problem]:
    if runtime.engine not in names():
        known = ", ".join(names())
        return [Problem(f"{path}.engine", f"there is no engine {runtime.engine}; there are {known}")]
    problems = [Problem(f"{path}.args", text) for text in check_args(runtime.engine, runtime.args)]
    problems += [Problem(f"{path}.env", text) for text in check_env(runtime.engine, runtime.env)]
    return problems + (_judge_source(f"{path}.weights", runtime.weights) if runtime.weights else [])


def _is_one_file(source: PathSource | PackageSource | WebSource | HubSource) -> bool:
    """As far as its name tells: what a path leads to is known where it lies."""
    if isinstance(source, HubSource):
        return bool(source.file)
    return not isinstance(source, PathSource)


def _judge_source(path: str, source: str) -> list[Problem]:
    try:
        parse_source(source)
    except LlmgwError as error:
        return [Problem(path, error.message, hint=error.hint)]
    return []
