"""Whatever somebody writes, the pure parts answer with their own errors or with lists, never with another exception."""

from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import LlmgwError
from engines.machine import parse_cpu_features, parse_glibc
from engines.packages import parse_packages
from engines.policy import check_args, check_env
from engines.prometheus import read_samples
from engines.pypi import Wheel, explain_failure
from engines.registry import names
from engines.sources import HubSource, PackageSource, WebSource, parse_source
from tests.contract.test_engine_adapters import a_spec

_TEXT = st.text(st.characters(), max_size=80)
_WORD = st.one_of(_TEXT, st.builds("--{}".format, _TEXT), st.builds("-{}".format, _TEXT))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(names()), st.lists(_WORD, max_size=4))
def test_arguments(engine: str, words: list[str]) -> None:
    problems = check_args(engine, words)

    assert len(problems) <= len(words)
    assert all(problem.isprintable() or not problem.isascii() for problem in problems)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(names()), st.dictionaries(_TEXT, _TEXT, max_size=4))
def test_environment(engine: str, env: dict[str, str]) -> None:
    assert len(check_env(engine, env)) <= len(env)


@settings(max_examples=300, deadline=None)
@given(st.one_of(_TEXT, st.builds("package:a==1/{}".format, _TEXT), st.builds("/{}".format, _TEXT)))
def test_sources(text: str) -> None:
    try:
        source = parse_source(text)
    except LlmgwError:
        return
    if isinstance(source, PackageSource | HubSource):
        inside = source.member if isinstance(source, PackageSource) else source.file or "x"
        assert not any(part in ("", ".", "..") for part in (source.folder + "/" + inside).split("/"))
    elif isinstance(source, WebSource):
        assert not any(part in ("", ".", "..") for part in source.member.split("/"))
    else:
        assert source.path.is_absolute()
        assert ".." not in source.path.parts


@settings(max_examples=200, deadline=None)
@given(_TEXT)
def test_readers(text: str) -> None:
    read_samples(text)
    parse_cpu_features(text)
    parse_glibc(text)
    try:
        parse_packages(text)
    except LlmgwError:
        pass


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_pips_last_words(output: bytes) -> None:
    assert "\n" not in explain_failure(Wheel("a", "1"), output, a_spec("sim").home).message
