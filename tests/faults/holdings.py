"""The resources of a process, measured from outside: memory, descriptors, threads, child processes."""

import psutil

MIB = 1024 * 1024


def of(pid: int) -> dict[str, int]:
    process = psutil.Process(pid)
    return {
        "mib": process.memory_info().rss // MIB,
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
        "children": len(process.children(recursive=True)),
    }


def family_mib(pid: int) -> float:
    """Resident memory of a process and its descendants. Memory shared between forks counts in each."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return sum(_rss(process) for process in family) / MIB


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
