"""The state of a process, read from /proc."""

from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Whether all its threads have stopped after SIGSTOP. A thread in a system call stops only after the call."""
    return all(_state(stat) in "Tt" for stat in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(stat: Path) -> str:
    """The state letter of proc_pid_stat(5), which follows the name in parentheses."""
    return stat.read_text().rpartition(")")[2].split()[0]
