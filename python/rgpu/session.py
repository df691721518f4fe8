"""The session with the server: connecting, counters, waits and flush policies."""

from __future__ import annotations

from typing import Any, NamedTuple

from rgpu import _C

_baseline: dict[str, int] = {}


class Wait(NamedTuple):
    """One program line that stood still for the server."""

    line: str
    """``file:line in function``; ``unknown`` where there is none."""
    count: int
    """How many times."""
    seconds: float
    """For how long in all."""


def connect(address: str | None = None, *, timeout_s: float = 5.0) -> dict[str, Any]:
    """Connect to a server and wait for its answer; returns what :func:`server` does.

    Args:
        address: ``host:port``; by default ``RGPU_OPSERVER``, else ``127.0.0.1:9720``.
        timeout_s: for the connection, and again for the server's answer.

    Tensors of an earlier session cannot be used any more. Not needed for the default address:
    the first op connects.

    Raises:
        ValueError: the address is malformed.
        RuntimeError: no server there, or one that cannot serve this client; says why.
    """
    _C.connect(address or "", timeout_s)
    _baseline.clear()
    _C.reset_waits()
    return _C.server()


def server() -> dict[str, Any]:
    """Who answers: server_version, torch_version, protocol_version, device_type and devices.

    ``devices`` is a list of (name, memory in bytes). Connects if need be; waits at most once.
    """
    return _C.server()


def stats() -> dict[str, int]:
    """Counters of this session since it began or :func:`reset_stats` was called.

    ``records`` (also called ``messages``) are ops and commands issued, ``frees`` tensors given
    back, ``templates`` distinct calls described, ``frames`` batches sent, ``waits`` the times a
    calling thread stood still for the server, whatever the cause (``stalls``: those for room in a
    ring), ``bytes_out`` and ``bytes_in`` everything on the socket (``payload_…``: the part that is
    tensor bytes), ``wakeups`` the system calls that woke the I/O thread, ``wait_ns`` the time stood
    still, ``server_busy_ns`` and ``server_idle_ns`` the server's time as of its last reply.
    """
    return {name: value - _baseline.get(name, 0) for name, value in _C.stats().items()}


def reset_stats() -> None:
    """Count from zero from here on; also forgets :func:`waits`."""
    _baseline.clear()
    _baseline.update(_C.stats())
    _C.reset_waits()


def waits() -> list[Wait]:
    """Which program lines waited, the longest first."""
    return sorted((Wait(*row) for row in _C.waits()), key=lambda wait: -wait.seconds)


def synchronize() -> None:
    """Wait until the server has done everything issued so far; raises what failed meanwhile."""
    _C.synchronize()


def set_flush_policy(name: str) -> None:
    """When records are sent.

    Args:
        name: ``per_op``, ``sync``, ``bytes=N``, ``deadline=MICROSECONDS`` or ``adaptive``.

    Raises:
        ValueError: the name is none of these; the message lists them.
    """
    _C.set_flush_policy(name)


def flush_policy() -> str:
    """The name of the policy in force."""
    return _C.flush_policy()
