"""The `turnstop` command: a group whose subcommands are imported when they are asked for."""

from __future__ import annotations

import importlib

import click

_COMMANDS = {
    "answer": "turnstop.cli.client.command:answer",
    "bench": "turnstop.cli.bench.command:bench",
    "interrupt": "turnstop.cli.client.command:interrupt",
    "journal": "turnstop.cli.journal.command:journal",
    "lab": "turnstop.cli.lab.command:lab",
    "play": "turnstop.cli.client.command:play",
    "probe": "turnstop.cli.probe.command:probe",
    "rooms": "turnstop.cli.client.listing:rooms",
    "send": "turnstop.cli.client.command:send",
    "serve": "turnstop.cli.serve.command:serve",
    "stop": "turnstop.cli.client.command:stop",
    "watch": "turnstop.cli.client.command:watch",
}


INTERRUPTED = 130


class _Lazy(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            found: object = super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        return found

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Lazy)
@click.version_option(package_name="turnstop")
def main() -> None:
    """Stop an AI agent's turn for real."""
