"""Who may do what: principals, by the tokens that they show.

Without tokens a server listens on this machine alone, and whoever reaches it is its user.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """What somebody may do; each may do what those before it may."""

    READER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who is connected. A name of None stands for the user of the server's process."""

    name: str | None
    role: Role


class Access:
    """Nobody has a token: everybody who is there may do everything."""

    @property
    def asks(self) -> bool:
        """Must a token be shown?"""
        return False

    def principal(self, token: str | None) -> Principal | None:
        """Who has a token; None if nobody has."""
        del token
        return Principal(None, Role.ADMIN)
