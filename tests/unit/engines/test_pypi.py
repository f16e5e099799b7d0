"""How pip is called, and what its last words mean. The outputs were recorded from pip 23.0.1 and 26.3."""

from pathlib import Path

import pytest

from core.errors import ConfigError, LlmgwError
from engines.packages import Packages, parse_packages
from engines.pypi import Wheel, build_requirements, explain_failure, plan_pip

_WHEEL = Wheel("pkg", "1.0", ("ab" * 32,), 10)
_INTO = Path("/state/engines/x/.staging-1")


def _plan(mirror: str = "", environ: dict[str, str] | None = None, wheel: Wheel = _WHEEL) -> tuple[str, dict[str, str]]:
    pip = Path("/usr/lib/pip/__main__.py")
    call = plan_pip(wheel, _INTO, packages=parse_packages(mirror), environ=environ or {}, pip=pip)
    return " ".join(call.argv), call.environment


def test_pip_only_downloads_pinned_wheels_and_runs_nothing_of_them() -> None:
    argv, _ = _plan()

    assert " -I " in argv
    assert " /usr/lib/pip/__main__.py download --no-deps --only-binary :all: " in argv
    assert "--require-hashes" in argv
    assert build_requirements(_WHEEL) == f"pkg==1.0 --hash=sha256:{'ab' * 32}\n"


def test_without_a_pin_the_index_is_believed() -> None:
    argv, _ = _plan(wheel=Wheel("pkg", "1.0"))

    assert "--require-hashes" not in argv
    assert build_requirements(Wheel("pkg", "1.0")) == "pkg==1.0\n"


def test_temporary_files_go_where_the_space_was_checked() -> None:
    assert _plan()[1]["TMPDIR"] == str(_INTO / "tmp")


def test_the_operators_index_proxy_and_certificates_are_honoured_and_nothing_else_is_passed_on() -> None:
    environ = {
        "PIP_INDEX_URL": "https://i/simple", "HTTPS_PROXY": "http://p", "no_proxy": "x", "SSL_CERT_FILE": "/c",
        "AWS_SECRET_ACCESS_KEY": "s", "LD_PRELOAD": "/x", "PYTHONPATH": "/y", "NOTIFY_SOCKET": "/n",
    }  # fmt: skip

    _, environment = _plan(environ=environ)

    assert set(environment) == {"PIP_INDEX_URL", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "TMPDIR"}
    assert environment["no_proxy"] == "x,127.0.0.1,localhost,::1"


def test_a_folder_as_mirror_means_that_no_index_is_asked() -> None:
    argv, environment = _plan("/srv/wheels", {"PIP_EXTRA_INDEX_URL": "https://e", "PIP_FIND_LINKS": "/f"})

    assert "--no-index --find-links /srv/wheels" in argv
    assert set(environment) == {"TMPDIR", "no_proxy"}


def test_a_mirrors_password_is_not_in_argv_nor_in_an_error() -> None:
    mirror = "https://user:hunter2@index.example/simple"

    argv, environment = _plan(mirror, {"PIP_INDEX_URL": "https://other"})
    error = explain_failure(_WHEEL, b"No matching distribution found", _INTO, parse_packages(mirror))

    assert "hunter2" not in argv
    assert environment["PIP_INDEX_URL"] == mirror
    assert "hunter2" not in error.message + error.hint


@pytest.mark.parametrize("mirror", ["/srv/wheels", "file:///srv/wheels"])
def test_a_folder_may_be_written_as_a_path_or_a_file_url(mirror: str) -> None:
    assert parse_packages(mirror) == Packages(Path("/srv/wheels"))


@pytest.mark.parametrize("mirror", ["https://i.example/simple", "http://127.0.0.1:3141/x", "http://localhost/simple"])
def test_an_index_must_be_https_or_on_this_machine(mirror: str) -> None:
    assert parse_packages(mirror) == Packages(index=mirror)


@pytest.mark.parametrize(
    "mirror",
    ["http://i.example/simple", "wheels", "./w", "ftp://h/x", "https://", "https://[bad", "-r /etc/x", "file://h/x"],
)
def test_what_can_be_no_mirror_is_a_config_error(mirror: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_packages(mirror)

    assert caught.value.code == "mirror_invalid"


_GONE, _OTHER = "package_unavailable", "package_digest_mismatch"


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", _OTHER, "sha256"),
        ("ERROR: Could not install packages: OSError: [Errno 28] No space left on device", "disk_full", "space"),
        ("OSError: [Errno 122] Disk quota exceeded", "disk_full", "space"),
        (
            "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(\"HTTPSConnection"
            "(host='pypi.org', port=443): Failed to establish a new connection: [Errno -3] Temporary failure in name "
            "resolution\")': /simple/pkg/\nERROR: Could not find a version that satisfies the requirement pkg==1.0 "
            "(from versions: none)\nERROR: No matching distribution found for pkg==1.0",
            _GONE,
            "its name cannot be resolved",
        ),
        ("NewConnectionError: Failed to establish a new connection: [Errno 111]", _GONE, "no connection"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]'))", _GONE, "certificate"),
        ("ProxyError('Cannot connect to proxy.', OSError('407'))", _GONE, "proxy"),
        ("ReadTimeoutError: Read timed out. (read timeout=15)", _GONE, "does not answer"),
        ("ERROR: No matching distribution found for pkg==1.0", _GONE, "has no pkg 1.0 for this machine"),
        (
            "ERROR: No matching distribution found for torch==2.13.0+cpu; x",
            _GONE,
            "has no torch==2.13.0+cpu, which pkg 1.0 needs, for this machine",
        ),
        (
            "ERROR: no\n\nThe conflict is caused by:\n    a 1.0 depends on b<2\n    c depends on b>2\n\nTo",
            _GONE,
            "nothing in the package index meets all that pkg 1.0 needs: a 1.0 depends on b<2 / c depends on b>2",
        ),
        ("something new", _GONE, "something new"),
        ("", _GONE, "pip said nothing"),
    ],
)  # fmt: skip
def test_each_way_to_fail_is_one_clear_error(output: str, code: str, said: str) -> None:
    error: LlmgwError = explain_failure(_WHEEL, output.encode(), _INTO)

    assert error.code == code
    assert said in error.message
    assert "\n" not in error.message
