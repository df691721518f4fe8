"""Where did the time go: a trace of a stretch of a program, here and on the server."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from rgpu import _C

_EXECUTED, _RECEIVED = 1, 2  # wire::TraceKind
_CLIENT, _SERVER = 1, 2  # The trace's processes.
_FLUSH, _WIRE = 1001, 1002  # Tracks of the client beside its threads.
_QUEUE = 1_000_000  # A track of the server beside its streams.
_STREAMS = 64  # Of a device: wire/stream.h.


def _stream_name(number: int) -> str:
    """What a stream is called; those of the first device without naming it."""
    device, stream = divmod(number, _STREAMS)
    return f"rgpu:{device} stream {stream}" if device else f"stream {stream}"


class _Call(NamedTuple):
    name: str
    line: str
    thread: int
    stream: int
    is_wait: bool
    record: int
    begin: int
    end: int


class _Batch(NamedTuple):
    last_record: int
    records: int
    size: int
    began: int
    ended: int
    applied: int


class _Executed(NamedTuple):
    kind: int
    record: int
    stream: int
    begin: int
    end: int


class profile:  # noqa: N801 - a context manager, as torch.profiler's
    """Traces what happens inside, and writes a Chrome trace of it (ui.perfetto.dev shows it).

    The trace has the calling threads' ops and waits with their program lines, the flushes, the
    batches under way, and the server's streams; all times are on this machine's clock. Entering
    and leaving synchronize, and are not part of the trace. One at a time in a process.

    Args:
        path: where the trace goes; None writes none.
        print_summary: whether :meth:`summary` is printed at the end.

    Raises:
        RuntimeError: a profile is under way, or the session is lost.
    """

    def __init__(
        self, path: str | Path | None = "rgpu-trace.json", print_summary: bool = True
    ) -> None:
        self.path = None if path is None else Path(path)
        self._print_summary = print_summary
        self._calls: list[_Call] = []
        self._batches: list[_Batch] = []
        self._server: list[_Executed] = []
        self._begin = self._end = self._uncertain = self._lost = 0

    def __enter__(self) -> Self:
        _C.start_trace()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        data = _C.stop_trace()
        offset = data["server_offset_ns"]
        self._begin, self._end = data["begin_ns"], data["end_ns"]
        self._uncertain, self._lost = data["server_uncertain_ns"], data["lost"]
        self._calls = [_Call(*row) for row in data["calls"]]
        self._batches = [_Batch(*row) for row in data["batches"]]
        self._server = [
            _Executed(kind_, record, stream, begin - offset, end - offset)
            for kind_, record, stream, begin, end in data["server"]
        ]
        if self.path is not None:
            self.path.write_text(json.dumps({"traceEvents": self._events()}))
        if self._print_summary:
            print(self.summary())

    # ---- The trace ------------------------------------------------------------------------------

    def _events(self) -> list[dict[str, Any]]:
        events = self._tracks()
        issued = {call.record: call for call in self._calls if not call.is_wait}
        for call in self._calls:
            events.append(
                self._slice(
                    f"wait at {call.line}" if call.is_wait else call.name,
                    (_CLIENT, call.thread),
                    (call.begin, call.end),
                    {"line": call.line, "stream": call.stream, "record": call.record},
                )
            )
        for number, batch in enumerate(self._batches):
            args = {"records": batch.records, "bytes": batch.size}
            events.append(self._slice("flush", (_CLIENT, _FLUSH), (batch.began, batch.ended), args))
            if batch.applied:
                name = f"batch of {batch.records}"
                events += self._span(name, number, (_CLIENT, _WIRE), batch.began, batch.applied)
        received = sorted(row for row in self._server if row.kind == _RECEIVED)
        for row in received:
            events.append(self._slice("decode", (_SERVER, _QUEUE), (row.begin, row.end), {}))
        for row in self._server:
            if row.kind != _EXECUTED:
                continue
            call = issued.get(row.record)
            about: dict[str, Any] = {"record": row.record}
            if call is not None:
                about |= {"line": call.line, "queued_us": (row.begin - call.end) / 1e3}
            events.append(
                self._slice(
                    call.name if call is not None else "command",
                    (_SERVER, row.stream),
                    (row.begin, row.end),
                    about,
                )
            )
        return events

    def _slice(
        self, name: str, track: tuple[int, int], times: tuple[int, int], args: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "name": name, "ph": "X", "pid": track[0], "tid": track[1],
            "ts": (times[0] - self._begin) / 1e3, "dur": (times[1] - times[0]) / 1e3, "args": args,
        }  # fmt: skip

    def _span(
        self, name: str, number: int, track: tuple[int, int], begin: int, end: int
    ) -> list[dict[str, Any]]:
        common = {"name": name, "cat": "wire", "id": number, "pid": track[0], "tid": track[1]}
        return [
            {**common, "ph": phase, "ts": (time - self._begin) / 1e3}
            for phase, time in (("b", begin), ("e", end))
        ]

    def _tracks(self) -> list[dict[str, Any]]:
        threads = sorted({call.thread for call in self._calls})
        streams = sorted({row.stream for row in self._server if row.kind == _EXECUTED})
        names: dict[tuple[int, int | None], str] = {
            (_CLIENT, None): "this program",
            (_SERVER, None): "rgpu-opserver",
            (_CLIENT, _FLUSH): "I/O thread: flush",
            (_CLIENT, _WIRE): "wire: batches under way",
            (_SERVER, _QUEUE): "receive and decode",
            **{(_CLIENT, thread): f"thread {thread}: issue and wait" for thread in threads},
            **{(_SERVER, stream): _stream_name(stream) for stream in streams},
        }
        return [
            {
                "name": "process_name" if track is None else "thread_name",
                "ph": "M", "pid": process, "tid": track or 0, "args": {"name": name},
            }
            for (process, track), name in names.items()
        ]  # fmt: skip

    # ---- The summary ----------------------------------------------------------------------------

    def summary(self) -> str:
        """One screen: the time here and on the server, the waits by line, the costliest ops."""
        ms = 1e-6
        whole = (self._end - self._begin) * ms
        issues = [call for call in self._calls if not call.is_wait]
        waits = [call for call in self._calls if call.is_wait]
        executed = [row for row in self._server if row.kind == _EXECUTED]
        busy = _covered([(row.begin, row.end) for row in executed]) * ms
        issue_ms = _covered([(call.begin, call.end) for call in issues]) * ms
        wait_ms = sum(call.end - call.begin for call in waits) * ms
        sent = sum(batch.size for batch in self._batches)
        share = f" ({busy / whole:.0%} of it)" if whole else ""
        rows = [
            f"rgpu profile: {whole:.2f} ms here, and the server was busy for {busy:.2f} ms{share}",
            f"  issuing {len(issues):>8,} ops      {issue_ms:>9.2f} ms",
            f"  waiting {len(waits):>8,} times    {wait_ms:>9.2f} ms",
            f"  sent    {len(self._batches):>8,} batches  {sent:>9,} bytes",
            f"  server  {len(executed):>8,} records  {busy:>9.2f} ms on "
            f"{len({row.stream for row in executed})} stream(s); its clock is known to "
            f"{self._uncertain / 1e3:.0f} µs",
        ]
        if self._lost:
            rows.append(f"  {self._lost:,} calls more are not in the trace, which is full")
        rows += _table("waits by program line", _by_key(waits, lambda call: call.line or "unknown"))
        names = {call.record: call.name for call in issues}
        ops = [row for row in executed if row.record in names]
        rows += _table("server time by op", _by_key(ops, lambda row: names[row.record]))
        if self.path is not None:
            rows.append(f"  trace: {self.path} (open it in ui.perfetto.dev)")
        return "\n".join(rows)


def _covered(spans: list[tuple[int, int]]) -> int:
    """The length of the union of the spans."""
    covered, reached = 0, None
    for begin, end in sorted(spans):
        start = begin if reached is None else max(begin, reached)
        if end > start:
            covered += end - start
        reached = end if reached is None else max(reached, end)
    return covered


def _by_key(rows: list[Any], key: Any) -> list[tuple[str, int, float]]:
    """(key, count, milliseconds), the longest first."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for row in rows:
        entry = sums[key(row)]
        entry[0] += 1
        entry[1] += (row.end - row.begin) * 1e-6
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    return [(name, int(count), time) for name, (count, time) in ordered]


def _table(title: str, rows: list[tuple[str, int, float]], most: int = 8) -> list[str]:
    if not rows:
        return []
    lines = [f"  {title}"]
    lines += [f"    {time:>9.2f} ms  {count:>6,} ×  {name}" for name, count, time in rows[:most]]
    if len(rows) > most:
        rest = sum(time for _, _, time in rows[most:])
        lines.append(f"    {rest:>9.2f} ms  in {len(rows) - most} others")
    return lines
