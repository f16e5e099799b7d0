"""Certificates for a gateway under test, and clients that trust some of them."""

import asyncio
import shutil
import ssl
from pathlib import Path

import msgspec

from core.api import RouteTable, ServerPolicy
from tests.fakes.upstream import FakeUpstream
from tests.integration.gateway.harness import Answer, read_answer, target_of
from tests.patience import SOON_S
from tests.unit.gateway.tables import model, table

TLS = Path(__file__).parents[2] / "data" / "tls"


def meeting(routes: RouteTable, **policy: object) -> RouteTable:
    """A table by which the gateway meets its clients like this."""
    return msgspec.structs.replace(routes, server=ServerPolicy(**policy))  # type: ignore[arg-type]


def place(directory: Path, name: str, key_name: str = "") -> None:
    """Certificate and key as `cert.pem` and `key.pem`, each at once."""
    for source, target in ((f"{name}.pem", "cert.pem"), (f"{key_name or name}-key.pem", "key.pem")):
        shutil.copyfile(TLS / source, directory / f"{target}.new")
        (directory / f"{target}.new").replace(directory / target)


def trusting(*names: str) -> ssl.SSLContext:
    """A client that believes these."""
    context = ssl.create_default_context()
    for name in names:
        context.load_verify_locations(TLS / f"{name}.pem")
    return context


async def served_name(address: tuple[str, int]) -> str:
    """Whose certificate a new connection is shown: the common name."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(SOON_S):
        _, writer = await asyncio.open_connection(*address, ssl=anybody)
        try:
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.close()
    known = {
        ssl.PEM_cert_to_DER_cert(_first_block(path)): path.stem for path in TLS.glob("*.pem") if "key" not in path.stem
    }
    return known.get(shown, "?")


def _first_block(path: Path) -> str:
    end = "-----END CERTIFICATE-----"
    return path.read_text().partition(end)[0] + end


async def ask_over_tls(address: tuple[str, int], trust: ssl.SSLContext, request: bytes) -> Answer:
    async with asyncio.timeout(SOON_S):
        reader, writer = await asyncio.open_connection(*address, ssl=trust)
        try:
            writer.write(request)
            return read_answer(await reader.read())
        finally:
            writer.close()


def secured(directory: Path, engine: FakeUpstream) -> RouteTable:
    cert, key_file = str(directory / "cert.pem"), str(directory / "key.pem")
    return meeting(table(model("m", target_of(engine))), tls_cert_file=cert, tls_key_file=key_file)
