"""`llmgw key`: clients' keys and what each may do."""

import asyncio
from datetime import UTC, datetime

import click

from cli.key_views import KEY_COLUMNS, describe_key, key_row, read_expiry
from cli.output import note, say, show_json, show_table
from cli.session import Session, pass_session, shared_options
from core.keys import SCOPES, CreatedKey, CreateKeyRequest, KeyList, RevokedKey


@click.group(short_help="Make, show and revoke clients' keys.")
@shared_options
def key() -> None:
    """Clients' keys. Only their hashes are kept; keys in the config go on holding beside them."""


@key.command("create", short_help="Make a key; it is shown this once.")
@click.argument("name")
@click.option("--scope", type=click.Choice(SCOPES), default="inference", show_default=True, help="What it opens.")
@click.option("--model", "models", metavar="ID", multiple=True, help="A model that it may use, or a pattern: 'qwen-*'.")
@click.option("--expires", metavar="WHEN", default="", help="30d, 12h, 2027-01-31, or a time of RFC 3339.")
@click.option("--requests-per-minute", metavar="N", type=click.IntRange(1), help="Requests in any minute.")
@click.option("--tokens-per-minute", metavar="N", type=click.IntRange(1), help="Tokens in any minute.")
@click.option("--concurrency", metavar="N", type=click.IntRange(1), help="Requests at once.")
@click.option("--dry-run", is_flag=True, help="Only say what would be made.")
@shared_options
@pass_session
def create(  # noqa: PLR0913 - what a key is made of
    session: Session,
    name: str,
    scope: str,
    models: tuple[str, ...],
    expires: str,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    concurrency: int | None,
    dry_run: bool,
) -> None:
    """Make a key called NAME and print it. It is kept nowhere: who loses it makes another.

    Every worker of the gateway knows it when the command returns, or a tenth of a second later.
    """
    request = CreateKeyRequest(
        name=name,
        scope=scope,
        models=list(models),
        expires_at=read_expiry(expires, datetime.now(UTC)),
        requests_per_minute=requests_per_minute or 0,
        tokens_per_minute=tokens_per_minute or 0,
        concurrency=concurrency or 0,
        dry=dry_run,
    )

    async def ask() -> CreatedKey:
        async with session.daemon() as daemon:
            return await daemon.create_key(request)

    created = asyncio.run(ask())
    if session.json:
        show_json(created)
    elif dry_run:
        say(f"would make {describe_key(created.key)}")
    else:
        note(f"made {describe_key(created.key)}; this is the only time that it is shown:")
        say(created.secret)


@key.command("list", short_help="Show all keys, and what each may do.")
@shared_options
@pass_session
def list_(session: Session) -> None:
    """Show every key's name and rules, those of the config included. What a key is, nobody can show."""

    async def ask() -> KeyList:
        async with session.daemon() as daemon:
            return await daemon.keys()

    answer = asyncio.run(ask())
    if session.json:
        show_json(answer)
    elif answer.keys:
        show_table(KEY_COLUMNS, [key_row(one, datetime.now(UTC)) for one in answer.keys])
    else:
        say("There are no keys.")


@key.command("revoke", short_help="Take a key away, for good.")
@click.argument("named", metavar="NAME|ID")
@click.option("--apply", is_flag=True, help="Do it; without, only say which key it would be.")
@shared_options
@pass_session
def revoke(session: Session, named: str, apply: bool) -> None:
    """Take the key of this name or id away. Requests that are under way end in peace; the next one is refused."""

    async def ask() -> RevokedKey:
        async with session.daemon() as daemon:
            return await daemon.revoke_key(named, apply=apply)

    revoked = asyncio.run(ask())
    if session.json:
        show_json({"applied": apply, "key": revoked.key})
        return
    say(f"{'revoked' if apply else 'would revoke'} {describe_key(revoked.key)}")
    if not apply:
        say("--apply does it")
