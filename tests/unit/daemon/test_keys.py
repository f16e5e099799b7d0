"""Clients' keys in the daemon: what one may look like, and the file that holds them."""

import json
import os
import stat
from pathlib import Path

import pytest

from core.config.load import parse_config
from core.errors import LlmgwError
from core.keys import CreateKeyRequest, KeyInfo
from core.log import get_logger
from daemon.key_store import KeyStore, KeysUnreadable, read_keys
from daemon.keys import KeyInvalid, check_rules, config_keys, hash_secret
from daemon.routes import build_route_table
from tests.unit.gateway.hand_clock import HandClock

NOW_S = 1_800_000_000.0


def store(path: Path) -> KeyStore:
    clock = HandClock()
    clock.now_s = NOW_S
    made = KeyStore(path, clock, get_logger("test"))
    made.load()
    return made


def request(name: str = "team-a", **rules: object) -> CreateKeyRequest:
    return CreateKeyRequest(name=name, **rules)  # type: ignore[arg-type]


def code_of(store: KeyStore, wanted: CreateKeyRequest) -> str:
    with pytest.raises(LlmgwError) as caught:
        store.create(wanted)
    return caught.value.code


def test_a_key_is_kept_as_a_hash_and_comes_back_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "lib" / "keys.json"
    made = store(path).create(
        request(
            models=["qwen-*", "qwen-*"], expires_at="2027-02-01T00:00:00+01:00", requests_per_minute=5, concurrency=2
        )
    )
    text = path.read_text()
    assert made.secret.startswith("sk-llmgw-") and len(made.secret) > 50
    assert made.secret not in text and hash_secret(made.secret) in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (again,) = store(path).list_keys()
    assert again == made.key
    assert (again.models, again.expires_at, again.created_at) == (
        ["qwen-*"], "2027-01-31T23:00:00Z", "2027-01-15T08:00:00Z",
    )  # fmt: skip
    (told,) = store(path).for_gateway()
    assert (told.sha256, told.made, told.requests_per_minute, told.concurrency) == (
        hash_secret(made.secret), True, 5, 2,
    )  # fmt: skip
    assert told.expires_s == 1801436400.0


def test_no_two_keys_are_alike(tmp_path: Path) -> None:
    keys = store(tmp_path / "k")
    made = [keys.create(request(f"n{number}")) for number in range(50)]
    assert len({one.secret for one in made}) == len({one.key.id for one in made}) == 50


@pytest.mark.parametrize(
    "rules",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "a\nb"},
        {"name": "-a"},
        {"name": "x" * 65},
        {"name": "ü"},
        {"name": "apiKeys[0]"},
        {"name": "key_0123456789ab"},
        {"scope": "root"},
        {"models": [""]},
        {"models": [" m"]},
        {"models": ["a\x00"]},
        {"models": ["m" * 257]},
        {"models": ["m"] * 65},
        {"expires_at": "tomorrow"},
        {"expires_at": "2030-01-01T00:00:00"},
        {"expires_at": "2020-01-01T00:00:00Z"},
        {"expires_at": "99999-01-01T00:00:00Z"},
        {"requests_per_minute": -1},
        {"tokens_per_minute": 10**10},
        {"concurrency": 100_001},
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(tmp_path: Path, rules: dict[str, object]) -> None:
    keys = store(tmp_path / "k")
    assert code_of(keys, request(**({"name": "n"} | rules))) == "key_invalid"  # type: ignore[arg-type]
    assert not (tmp_path / "k").exists()


@pytest.mark.parametrize("name", ["a", "team-a", "a.b_c@d:e+f", "0", "x" * 64])
def test_names_for_people(name: str) -> None:
    check_rules(request(name))


def test_a_name_is_given_once_and_again_when_it_is_free(tmp_path: Path) -> None:
    keys = store(tmp_path / "k")
    first = keys.create(request())
    assert code_of(keys, request()) == "key_exists"
    keys.revoke("team-a", [], apply=True)
    assert keys.create(request()).key.id != first.key.id


def test_a_dry_run_checks_everything_and_makes_nothing(tmp_path: Path) -> None:
    keys = store(tmp_path / "k")
    shown = keys.create(request(dry=True))
    assert (shown.secret, shown.key.id, shown.key.name) == ("", "", "team-a")
    assert not (tmp_path / "k").exists()
    keys.create(request())
    assert code_of(keys, request(dry=True)) == "key_exists"


@pytest.mark.parametrize("by", ["id", "name"])
def test_a_key_is_revoked_by_name_or_id_and_only_when_it_is_said(tmp_path: Path, by: str) -> None:
    keys = store(tmp_path / "k")
    made, other = keys.create(request()), keys.create(request("other"))
    named = getattr(made.key, by)
    assert keys.revoke(named, [], apply=False) == made.key
    assert len(store(tmp_path / "k").for_gateway()) == 2
    assert keys.revoke(named, [], apply=True) == made.key
    assert [key.name for key in keys.for_gateway()] == ["other"]
    assert store(tmp_path / "k").list_keys() == [other.key]


def test_what_is_no_key_is_not_revoked_and_a_key_itself_is_not_repeated(tmp_path: Path) -> None:
    keys = store(tmp_path / "k")
    made = keys.create(request())
    for named in ("nope", "", "../x", made.secret):
        with pytest.raises(LlmgwError) as caught:
            keys.revoke(named, [], apply=True)
        assert caught.value.code == "key_unknown"
        assert made.secret not in caught.value.render()
    with pytest.raises(LlmgwError) as caught:
        keys.revoke("apiKeys[0]", [KeyInfo(name="apiKeys[0]")], apply=True)
    assert caught.value.code == "key_in_config"
    assert len(keys.list_keys()) == 1


def good_file(path: Path) -> dict[str, object]:
    keys = store(path)
    keys.create(request("one"))
    keys.create(request("two"))
    file = json.loads(path.read_text())
    assert isinstance(file, dict)
    return file


def broken(file: dict[str, object], field: str, value: object) -> bytes:
    file["keys"][0][field] = value  # type: ignore[index]
    return json.dumps(file).encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: b"",
        lambda file: b"\x00" * 4096,
        lambda file: b"\xff\xfe",
        lambda file: b"[" * 100_000,
        lambda file: b"null",
        lambda file: b"[]",
        lambda file: b"{}",
        lambda file: json.dumps(file).encode()[:-30],
        lambda file: json.dumps(file | {"version": 2}).encode(),
        lambda file: json.dumps(file | {"more": 1}).encode(),
        lambda file: broken(file, "sha256", "zz" * 32),
        lambda file: broken(file, "sha256", "AB" * 32),
        lambda file: broken(file, "sha256", file["keys"][1]["sha256"]),
        lambda file: broken(file, "name", "two"),
        lambda file: broken(file, "name", "a\nb"),
        lambda file: broken(file, "id", file["keys"][1]["id"]),
        lambda file: broken(file, "id", "../../x"),
        lambda file: broken(file, "scope", "root"),
        lambda file: broken(file, "expiresAt", "soon"),
        lambda file: broken(file, "requestsPerMinute", -1),
        lambda file: broken(file, "requestsPerMinute", "many"),
        lambda file: broken(file, "concurrency", 10**30),
        lambda file: broken(file, "models", "m"),
        lambda file: broken(file, "isAdmin", True),
    ],
)
def test_a_file_that_is_not_understood_opens_nothing_and_is_never_overwritten(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "k"
    data = damage(good_file(path))  # type: ignore[operator]
    path.write_bytes(data)
    keys = store(path)
    assert keys.for_gateway() == [] and keys.fault
    assert code_of(keys, request("new")) == "keys_unreadable"
    with pytest.raises(KeysUnreadable):
        keys.revoke("one", [], apply=True)
    with pytest.raises(KeysUnreadable):
        keys.list_keys()
    assert path.read_bytes() == data
    # Administration stays closed meanwhile, and all is well once somebody mended it.
    config = parse_config(b"security: {apiKeys: [sk-1]}", path, {}).config
    table = build_route_table(config, {}, node="n", epoch="e", version=1, keys=keys)
    assert table.security.only_admin_keys
    path.unlink()
    keys.load()
    assert (keys.fault, keys.list_keys()) == ("", [])


def test_a_file_that_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "k"
    good_file(path)
    path.chmod(0o620)
    with pytest.raises(KeysUnreadable, match="mode 620"):
        read_keys(path)
    path.chmod(0o644)
    assert len(read_keys(path)) == 2
    if os.geteuid() == 0:
        os.chown(path, 1234, -1)
        with pytest.raises(KeysUnreadable, match="user 1234"):
            read_keys(path)


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "device"])
def test_what_is_no_file_holds_nobody_up(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "k"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        good_file(tmp_path / "real")
        path.symlink_to(tmp_path / "real")
    else:
        path = Path("/dev/zero")
    with pytest.raises(KeysUnreadable):
        read_keys(path)


def test_what_could_not_be_written_never_was(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "k"
    keys = store(path)
    kept = keys.create(request("kept"))
    path.parent.rename(tmp_path / "elsewhere")
    (tmp_path / "gone").write_text("a file where the folder was")
    assert code_of(keys, request("lost")) == "storage_failed"
    with pytest.raises(LlmgwError):
        keys.revoke("kept", [], apply=True)
    assert keys.list_keys() == [kept.key] and len(keys.for_gateway()) == 1


def test_the_configs_keys_are_named_by_their_place(tmp_path: Path) -> None:
    config = parse_config(b"security: {apiKeys: [sk-1, sk-2], adminApiKeys: [sk-3]}", tmp_path / "c", {}).config
    pairs = config_keys(config.security)
    assert [(info.name, key.name, key.scope, key.made) for info, key in pairs] == [
        ("apiKeys[0]", "apiKeys[0]", "inference", False),
        ("apiKeys[1]", "apiKeys[1]", "inference", False),
        ("adminApiKeys[0]", "adminApiKeys[0]", "admin", False),
    ]
    keys = store(tmp_path / "k")
    keys.create(request())
    table = build_route_table(config, {}, node="n", epoch="e", version=1, keys=keys)
    assert [key.name for key in table.keys] == ["apiKeys[0]", "apiKeys[1]", "adminApiKeys[0]", "team-a"]
    assert not table.security.only_admin_keys


def test_the_configs_check_takes_made_keys_for_keys(tmp_path: Path) -> None:
    text = b"server: {host: 0.0.0.0}\nsecurity: {allowNonLoopbackBind: true}"
    assert parse_config(text, tmp_path / "c", {}, has_made_keys=True).config.server.host == "0.0.0.0"
    with pytest.raises(LlmgwError, match="apiKeys"):
        parse_config(text, tmp_path / "c", {})


def test_thousands_of_keys_are_kept_and_no_more_than_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.keys.MOST_KEYS", 20)
    keys = store(tmp_path / "k")
    for number in range(20):
        keys.create(request(f"n{number}"))
    assert code_of(keys, request("more")) == "keys_full"
    keys.revoke("n3", [], apply=True)
    keys.create(request("more"))


def test_invalid_is_a_usage_error() -> None:
    assert KeyInvalid("x").exit_code == 2
