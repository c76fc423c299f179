"""The commands that are processes of a cluster, or bring a cluster up and down on this machine."""

from __future__ import annotations

import typer

from penstock.cli import doctor, down, key, master, prepare, supervisor, up, zookeeper


def register(app: typer.Typer) -> None:
    """Add them to the command line."""
    app.command("up")(up.up)
    app.command("down")(down.down)
    app.command("doctor")(doctor.doctor)
    app.command("prepare")(prepare.prepare)
    app.command("key")(key.key)
    app.command("master")(master.master)
    app.command("supervisor")(supervisor.supervisor)
    app.command("zookeeper")(zookeeper.zookeeper)
