"""Worlds: simulated problems whose truth is known. Truth lives here, never in a log."""

from cael.worlds.base import World
from cael.worlds.paper import PaperWorld

__all__ = ["PaperWorld", "World"]
