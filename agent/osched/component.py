"""OS scheduling as a part of the agent daemon: made from settings, run as a task, served by verbs."""

from __future__ import annotations

import fcntl
import os
import pwd
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from agent.drivers.base import Driver
from agent.drivers.registry import make
from agent.osched import answers
from agent.osched.cooperation.exchange import Peers
from agent.osched.kernel.door import Door
from agent.osched.scheduler import Scheduler
from edgert.boards.files import open_own, own_folder
from edgert.control.server import Handler
from edgert.core.errors import EdgertError
from edgert.core.settings.agent import Sched
from edgert.core.system_clock import SystemClock

JOURNAL: Final = "osched.journal"
LOCK: Final = "osched.lock"
VERBS: Final = ("sched.status", "sched.explain", "sched.dry-run", "sched.policy")


class OsScheduling:
    """The agent's part that steers the Linux scheduler.

    `gateway_socket` is that of this board's gateway, used where `sched.drivers` names no engine; `data_folder` keeps
    the journal, and only one agent may use it. Raises `EdgertError` for a driver that cannot be made, where another
    agent uses the folder, and where another user can change it. `peers`: the agents of other boards.
    """

    def __init__(
        self,
        settings: Sched,
        gateway_socket: str,
        data_folder: Path,
        drivers: Sequence[Driver] | None = None,
        peers: Peers | None = None,
    ) -> None:
        self._lock = _lock(data_folder / LOCK)
        if drivers is None:
            users = [user_id(user) for user in settings.engine_users]
            drivers = [make(text, users) for text in settings.drivers or (f"edgert={gateway_socket}",)]
        self.scheduler = Scheduler(
            settings, drivers, Door(data_folder / JOURNAL), SystemClock(), random.SystemRandom().random, peers
        )
        answering: tuple[Handler, ...] = (self._status, self._explain, self._dry_run, self._policy)
        self.handlers: dict[str, Handler] = dict(zip(VERBS, answering, strict=True))

    async def run(self) -> None:
        """Runs until it is cancelled: then every thread is as it was before the agent came."""
        try:
            await self.scheduler.run()
        finally:
            self._lock.close()

    def status(self) -> dict[str, Any]:
        """The answer of `sched.status`."""
        return answers.status(self.scheduler)

    async def _status(self, args: Mapping[str, Any]) -> Any:
        return self.status()

    async def _explain(self, args: Mapping[str, Any]) -> Any:
        return answers.explain(self.scheduler, _text(args, "operator"))

    async def _dry_run(self, args: Mapping[str, Any]) -> Any:
        return answers.dry_run(self.scheduler, _text(args, "policy", self.scheduler.running.policy))

    async def _policy(self, args: Mapping[str, Any]) -> Any:
        self.scheduler.use(_text(args, "policy"))
        await self.scheduler.turn()
        return answers.status(self.scheduler)


def user_id(user: str) -> int:
    """The id of a user by name or number. Raises `EdgertError`."""
    try:
        return int(user) if user.isascii() and user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise EdgertError(f"sched.engine_users: expected users of this board, got {user!r}") from None


def switched_off() -> dict[str, Handler]:
    """The verbs of an agent whose settings have OS scheduling off."""

    async def off(args: Mapping[str, Any]) -> Any:
        return {"enabled": False}

    return dict.fromkeys(VERBS, off)


def _lock(path: Path) -> BinaryIO:
    """Held as long as the file is open; the kernel opens it at a kill."""
    try:
        own_folder(path.parent)
        file = os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT), "wb")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise EdgertError(f"{path}: expected one agent per data folder, got a second one: give it another") from None
    except OSError as error:
        raise EdgertError(f"{path}: {error.strerror}") from error
    return file


def _text(args: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = args.get(name, default)
    if not isinstance(value, str) or not value:
        raise EdgertError(f"{name}: expected a text, got {value!r}")
    return value
