"""What `llmgw weights verify NAME` means, and when nothing is called so."""

from pathlib import Path

import pytest

from core.config.schema import Config, Model, Runtime
from core.weights import FileState
from daemon.local_api.verification import WeightsNotFetched, choose, sources_by_name
from engines.stored import StoredUnit

W = Path("/w")
SHA = "a" * 64
WEB = f"https://example.org/x.gguf#sha256={SHA}"
PACKAGE = "package:some_model==1.0/x.gguf"


def unit(kind: str, name: str, path: str) -> StoredUnit:
    return StoredUnit(kind, name, W / path, W / path / ".lock")


UNITS = [
    unit("package", "some-model-1.0", "package/some-model-1.0"),
    unit("https", SHA[:16], f"https/{SHA[:16]}"),
    unit("hf", "org/m@aaaaaaaaaaaa", f"hf/org--m/{'a' * 40}"),
    unit("hf", "org/m@bbbbbbbbbbbb", f"hf/org--m/{'b' * 40}"),
]
SOURCES = {"runtime": PACKAGE, "chat": WEB, "own": "/srv/x.gguf", "gone": "package:gone==1/x.gguf"}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("runtime", ["some-model-1.0"]),
        ("chat", [SHA[:16]]),
        (WEB, [SHA[:16]]),
        (PACKAGE, ["some-model-1.0"]),
        ("some-model-1.0", ["some-model-1.0"]),
        ("org/m@bbbbbbbbbbbb", ["org/m@bbbbbbbbbbbb"]),
        ("hf:org/m", ["org/m@aaaaaaaaaaaa", "org/m@bbbbbbbbbbbb"]),
    ],
)
def test_a_name_means_units(name: str, wanted: list[str]) -> None:
    units, own = choose(name, UNITS, SOURCES, W)

    assert [each.name for each in units] == wanted and own == []


def test_a_file_of_ones_own_has_no_digest() -> None:
    units, [own] = choose("own", UNITS, SOURCES, W)

    assert units == [] and (own.path, own.state) == ("/srv/x.gguf", FileState.NO_DIGEST)


@pytest.mark.parametrize("name", ["gone", "nobody", "hf:org/other", "../x", "\x1b[31m", "x" * 10_000])
def test_what_was_not_fetched_is_not_found(name: str) -> None:
    with pytest.raises(WeightsNotFetched):
        choose(name, UNITS, SOURCES, W)


def test_models_and_runtimes_are_both_names_of_their_weights() -> None:
    config = Config(
        models=[Model(id="chat", runtime="r"), Model(id="lost", runtime="nobody")],
        runtimes={"r": Runtime(engine="llamacpp", weights="/x"), "s": Runtime(engine="sim")},
    )

    assert sources_by_name(config) == {"chat": "/x", "r": "/x"}
