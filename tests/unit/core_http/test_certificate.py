"""Which certificate a worker serves with, by what stands in its files and by what was served before."""

import shutil
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.http.certificate import Certificate
from core.http.kept_tls import KEPT_TLS_VARIABLE, KeptTls
from core.http.tls import TlsFiles, TlsPair, TlsUnusable, read_pair
from core.http.validity import read_expiry

TLS = Path(__file__).parents[2] / "data" / "tls"
NOW_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


class App:
    """An application whose files are in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files: TlsFiles | None = TlsFiles(str(directory / "cert.pem"), str(directory / "key.pem"))
        self.judgements: list[str] = []

    def tls_files(self) -> TlsFiles | None:
        return self.files

    def tls_judged(self, complaint: str) -> None:
        self.judgements.append(complaint)

    def place(self, name: str, key_name: str = "") -> None:
        """As renewals do: a new file under the old name."""
        for source, target in ((f"{name}.pem", "cert.pem"), (f"{key_name or name}-key.pem", "key.pem")):
            copied = self.directory / f"{target}.new"
            shutil.copyfile(TLS / source, copied)
            copied.replace(self.directory / target)

    def expire(self) -> None:
        """What is named now has expired."""
        both = str(TLS / "provider-expired.pem")
        self.files = TlsFiles(both, both)


class Bench:
    def __init__(self, directory: Path, kept: KeptTls | None = None) -> None:
        self.app = App(directory)
        self.kept = kept or KeptTls.create()
        self.now_s = NOW_S

    def begin(self) -> Certificate:
        """One more worker."""
        made = Certificate(self.app, self.kept, lambda: self.now_s)
        made.begin()
        return made


@pytest.fixture
def on(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def settle(certificate: Certificate) -> bool:
    """Look until nothing moves; whether it changed."""
    return any([certificate.look() for _ in range(3)])


def test_a_renewed_one_is_taken_up_once_and_when_it_is_still(on: Bench) -> None:
    on.app.place("first")
    certificate = on.begin()
    assert not settle(certificate)
    before = certificate.context
    on.app.place("second")
    assert [certificate.look() for _ in range(4)] == [False, True, False, False]
    assert certificate.context is not before and on.app.judgements == []


def test_a_renewal_is_not_met_between_its_two_files(on: Bench) -> None:
    on.app.place("first")
    certificate = on.begin()
    on.app.place("second", "first")
    assert not certificate.look()
    on.app.place("second")
    assert not certificate.look()
    assert certificate.look() and on.app.judgements == []


def test_files_that_were_only_touched_change_nothing(on: Bench) -> None:
    on.app.place("first")
    certificate = on.begin()
    on.app.place("first")
    assert not settle(certificate)


def test_broken_files_are_told_once_and_a_mended_one_is_taken_up(on: Bench) -> None:
    on.app.place("first")
    certificate = on.begin()
    before = certificate.context
    on.app.place("second", "first")
    assert not settle(certificate) and not settle(certificate)
    assert certificate.context is before
    (said,) = on.app.judgements
    assert "cert.pem" in said and "mismatch" in said.lower()
    on.app.place("second")
    assert settle(certificate)
    assert on.app.judgements == [said, ""]


def test_files_that_come_back_as_they_were_are_fine_again(on: Bench) -> None:
    on.app.place("first")
    certificate = on.begin()
    (on.app.directory / "key.pem").unlink()
    settle(certificate)
    on.app.place("first")
    assert not settle(certificate)
    assert on.app.judgements[-1] == "" and len(on.app.judgements) == 2


def test_a_new_worker_goes_on_with_what_was_served(on: Bench) -> None:
    on.app.place("first")
    on.begin()
    on.app.place("second", "locked")
    later = on.begin()
    assert later.context is not None and "passphrase" in on.app.judgements[-1]
    assert on.kept.find() == (True, read_pair(TlsFiles(str(TLS / "first.pem"), str(TLS / "first-key.pem"))))
    on.app.place("second")
    assert settle(later) and on.app.judgements[-1] == ""


@pytest.mark.parametrize("has_memory", [True, False])
def test_a_worker_that_has_nothing_to_serve_with_does_not_begin(tmp_path: Path, has_memory: bool) -> None:
    app = App(tmp_path)
    app.place("second", "first")
    with pytest.raises(TlsUnusable):
        Certificate(app, KeptTls.create() if has_memory else None, lambda: NOW_S).begin()


def test_plain_http_goes_on_where_the_first_certificate_is_broken(on: Bench) -> None:
    files, on.app.files = on.app.files, None
    certificate = on.begin()
    assert certificate.context is None
    on.app.files = files
    assert not settle(certificate) and certificate.context is None and len(on.app.judgements) == 1
    assert on.begin().context is None
    on.app.place("first")
    assert settle(certificate) and isinstance(certificate.context, ssl.SSLContext)


def test_tls_is_turned_off_by_the_config_alone(on: Bench) -> None:
    on.app.place("first")
    certificate = on.begin()
    on.app.files = None
    assert settle(certificate) and certificate.context is None
    assert on.kept.find() == (True, None)


def test_an_expired_one_replaces_no_good_one_and_any_other(on: Bench) -> None:
    on.app.place("first")
    certificate = on.begin()
    on.app.expire()
    assert not settle(certificate)
    assert on.app.judgements[-1].endswith("has expired on 2021-01-01T00:00:00+00:00; the one before it is still good")
    on.now_s = datetime(2127, 1, 1, tzinfo=UTC).timestamp()
    assert settle(certificate)
    assert on.app.judgements[-1] == "the certificate has expired on 2021-01-01T00:00:00+00:00"


def test_one_that_expires_while_it_is_served_is_told(on: Bench) -> None:
    on.app.place("first")
    certificate = on.begin()
    on.now_s = datetime(2127, 1, 1, tzinfo=UTC).timestamp()
    assert not settle(certificate) and certificate.context is not None
    assert on.app.judgements == ["the certificate has expired on 2126-11-06T05:14:37+00:00"]


def test_what_is_kept_is_found_by_its_number_and_shrinks() -> None:
    kept = KeptTls.create()
    found = KeptTls.from_environment({KEPT_TLS_VARIABLE: str(kept.fd)})
    assert found is not None and found.find() == (False, None)
    kept.keep(TlsPair(b"c" * 5000, b"k" * 300))
    assert found.find() == (True, TlsPair(b"c" * 5000, b"k" * 300))
    kept.keep(TlsPair(b"c", b""))
    assert found.find() == (True, TlsPair(b"c", b""))
    kept.keep(None)
    assert found.find() == (True, None)
    assert KeptTls.from_environment({}) is None
    assert "cc" not in repr(TlsPair(b"cc", b"kk"))


@pytest.mark.parametrize(
    ("name", "year"), [("first", 2126), ("provider", 2120), ("provider-expired", 2021), ("first-key", None)]
)
def test_the_end_of_a_certificate_is_read(name: str, year: int | None) -> None:
    found = read_expiry((TLS / f"{name}.pem").read_bytes())
    assert (datetime.fromtimestamp(found, UTC).year if found is not None else None) == year


@given(st.binary(max_size=400), st.integers(0, 600))
def test_nonsense_has_no_end(data: bytes, cut: int) -> None:
    assert read_expiry(data) is None
    block = f"-----BEGIN CERTIFICATE-----\n{ssl.DER_cert_to_PEM_cert(data).split(chr(10), 1)[1]}".encode()
    assert read_expiry(block) is None
    good = (TLS / "first.pem").read_bytes()
    found = read_expiry(good[:cut] + good[cut + 7 :])
    assert found is None or isinstance(found, float)
