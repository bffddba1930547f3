"""Processes over the agent's stream: input, output, terminals, and their end."""

from __future__ import annotations

import errno
import os
import signal

import pytest
from support.agent import (
    ACK,
    EXITED,
    FAILED,
    INPUT,
    INPUT_END,
    OUTPUT,
    RESIZE,
    SIGNAL,
    STAT,
    STREAMS,
    TAKEN,
    TERMINAL,
    WINDOW,
    Agent,
    Failure,
    text,
    u32,
    u64,
)

STREAMED = u32(STREAMS)


def start_terminal(agent: Agent, id: int, command: str, rows: int = 24, columns: int = 80) -> int:
    return agent.start(id, ["sh", "-c", command], u32(TERMINAL, rows, columns), env=["TERM=dumb"])


def test_passed_descriptors_work_as_ever(agent: Agent) -> None:
    ours, theirs = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    agent.start(1, ["sh", "-c", "echo hello; exit 3"], fds=[null, theirs, null])
    os.close(theirs)
    os.close(null)
    with os.fdopen(ours) as pipe:
        assert pipe.read() == "hello\n"
    frame = agent.receive()
    assert (frame.kind, frame.id, frame.u32()) == (EXITED, 1, 3 << 8)


def test_both_streams_come_and_the_exit_comes_last(agent: Agent) -> None:
    agent.start(7, ["sh", "-c", "printf out; printf err >&2; exit 5"], STREAMED)
    assert agent.finish(7) == (b"out", b"err", 5 << 8)


def test_a_missing_command_is_reported(agent: Agent) -> None:
    with pytest.raises(Failure, match="executing it") as failure:
        agent.start(1, ["no-such-command"], STREAMED)
    assert failure.value.code == errno.ENOENT
    agent.start(1, ["true"], STREAMED)
    assert agent.finish(1) == (b"", b"", 0)


def test_input_arrives_is_counted_and_ends(agent: Agent) -> None:
    agent.start(1, ["cat"], STREAMED)
    for part in (b"one\n", b"", b"\0\xff two\n"):
        agent.send(INPUT, 1, text(part))
    agent.send(INPUT_END, 1)
    taken, output = 0, b""
    while (frame := agent.answer()).kind != EXITED:
        if frame.kind == TAKEN:
            taken = frame.u64()
        else:
            assert (frame.kind, frame.u32()) == (OUTPUT, 1)
            output += frame.bytes()
    assert output == b"one\n\0\xff two\n"
    assert taken == len(output)


def test_input_that_no_code_reads_is_bounded(agent: Agent) -> None:
    agent.start(1, ["sleep", "1000"], STREAMED)
    held = 0
    while True:  # a pipe and the agent's queue hold some, and then it is said that no more is
        agent.send(INPUT, 1, text(bytes(32 << 10)))
        agent.send(STAT, 1000, text("/") + u32(1))
        frames = [agent.receive()]
        while frames[-1].id != 1000:
            frames.append(agent.receive())
        if FAILED in [frame.kind for frame in frames]:
            break
        held += 32 << 10
        assert held <= WINDOW + (1 << 20)
    assert held >= WINDOW
    agent.send(SIGNAL, 1, u32(signal.SIGKILL, 0))
    assert agent.finish(1)[2] == signal.SIGKILL


def test_a_flood_is_blocked_until_it_is_acknowledged(agent: Agent) -> None:
    size = 3_000_000
    agent.start(1, ["head", "-c", str(size), "/dev/zero"], STREAMED)
    got = 0
    while got < WINDOW:
        frame = agent.answer()
        assert (frame.kind, frame.u32()) == (OUTPUT, 1)
        got += len(frame.bytes())
    assert got == WINDOW
    # Not one byte more comes, and everything else goes on.
    for _ in range(20):
        agent.ask(STAT, text("/") + u32(1))
    agent.send(ACK, 1, u64(got))
    rest, _, status = agent.finish(1, got)
    assert (got + len(rest), status) == (size, 0)


def test_acknowledging_everything_in_advance_lifts_the_bound(agent: Agent) -> None:
    agent.start(1, ["head", "-c", "2000000", "/dev/zero"], STREAMED)
    agent.send(ACK, 1, u64(2**64 - 1))
    got = 0
    while (frame := agent.answer()).kind == OUTPUT:
        assert frame.u32() == 1
        got += len(frame.bytes())
    assert (frame.kind, got) == (EXITED, 2_000_000)


def test_a_child_that_inherits_the_pipes_does_not_delay_the_exit(agent: Agent) -> None:
    agent.start(1, ["sh", "-c", "sleep 60 & echo out"], STREAMED)
    assert agent.finish(1) == (b"out\n", b"", 0)


def test_signals_reach_the_process_or_its_group(agent: Agent) -> None:
    agent.start(1, ["sh", "-c", "trap 'echo one; exit 9' TERM; echo ready; sleep 60 & wait"], STREAMED)
    assert agent.read_until(1, b"ready\n") == b"ready\n"
    agent.send(SIGNAL, 1, u32(signal.SIGTERM, 0))
    assert agent.finish(1, 6) == (b"one\n", b"", 9 << 8)
    agent.start(2, ["sh", "-c", "echo ready; sleep 1000; echo not reached"], STREAMED)
    agent.read_until(2, b"ready\n")
    agent.send(SIGNAL, 2, u32(signal.SIGKILL, 1))
    assert agent.finish(2, 6) == (b"", b"", signal.SIGKILL)
    agent.send(SIGNAL, 2, u32(signal.SIGKILL, 1))  # too late, and harmless
    agent.ask(STAT, text("/") + u32(1))


def test_ids_are_not_used_twice_at_once(agent: Agent) -> None:
    agent.start(1, ["cat"], STREAMED)
    with pytest.raises(Failure) as failure:
        agent.start(1, ["cat"], STREAMED)
    assert failure.value.code == errno.EEXIST
    agent.send(INPUT_END, 1)
    assert agent.finish(1) == (b"", b"", 0)


def test_a_terminal_has_a_size_and_takes_a_new_one(agent: Agent) -> None:
    start_terminal(agent, 1, "stty size; read line; stty size; echo got=$line; tty -s && exit 4", 33, 101)
    assert b"33 101\r\n" in agent.read_until(1, b"101\r\n")
    agent.send(RESIZE, 1, u32(40, 120))
    agent.send(INPUT, 1, text(b"hello\n"))
    assert b"40 120\r\n" in agent.read_until(1, b"got=hello\r\n")
    assert agent.finish(1)[2] == 4 << 8


def test_keys_of_a_terminal_work(agent: Agent) -> None:
    start_terminal(agent, 1, "trap 'echo caught; exit 7' INT; echo ready; read line; read line")
    agent.read_until(1, b"ready\r\n")
    agent.send(INPUT, 1, text(b"\x03"))
    output, _, status = agent.finish(1, len("ready\r\n"))
    assert (b"caught" in output, status) == (True, 7 << 8)
    start_terminal(agent, 2, "cat; echo end")
    agent.send(INPUT_END, 2)
    output, _, status = agent.finish(2)
    assert (output.endswith(b"end\r\n"), status) == (True, 0)


def test_only_terminals_can_be_resized(agent: Agent) -> None:
    agent.start(1, ["cat"], STREAMED)
    agent.send(RESIZE, 1, u32(1, 1))
    with pytest.raises(Failure) as failure:
        agent.answer()
    assert failure.value.code == errno.ENOTTY


def test_nothing_of_the_agent_is_inherited(agent: Agent) -> None:
    agent.start(1, ["cat"], STREAMED)
    for id, flags in ((2, STREAMED), (3, u32(TERMINAL, 24, 80))):
        agent.start(id, ["ls", "-1", "/proc/self/fd"], flags)
        assert agent.finish(id)[0].split() == [b"0", b"1", b"2", b"3"], "3 is the directory that ls reads"
        agent.start(id, ["cat", "/proc/self/status"], flags)
        output = agent.finish(id)[0].replace(b"\r", b"").decode()
        assert "SigBlk:\t0000000000000000\n" in output
        assert "SigIgn:\t0000000000000000\n" in output
