"""`make conformance`: runs our client against the official suite, both revisions and the back-compatible scenarios.

python -m tests.conformance.run [--out FOLDER] [SCENARIO ...]

Exits with status 0 when every scenario passed, scored or not.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.conformance import suite

REVISIONS = ("2025-11-25", "2026-07-28")


def report(one: suite.Verdict, note: str) -> None:
    counts = ", ".join(f"{count} {status.lower()}" for status, count in sorted(one.counts.items()))
    print(f"  {'passed' if one.passed else 'FAILED'}  {one.scenario}{note} ({counts or 'no checks'})", flush=True)
    if one.problem:
        print(f"          {one.problem}", flush=True)


def run_set(wanted: suite.Required, only: set[str], out: Path) -> list[suite.Verdict]:
    print(wanted.name, flush=True)
    verdicts = []
    for scenario in (*wanted.scored, *wanted.unscored):
        if only and scenario not in only:
            continue
        verdict = suite.run(scenario, wanted.name, out)
        report(verdict, "" if scenario in wanted.scored else ", never scored")
        verdicts.append(verdict)
    return verdicts


def summary(wanted: suite.Required, verdicts: list[suite.Verdict]) -> str:
    scored = [verdict.passed for verdict in verdicts if verdict.scenario in wanted.scored]
    others = [verdict.passed for verdict in verdicts if verdict.scenario in wanted.unscored]
    checks, wire = Counter[str](), Counter[str]()
    for verdict in verdicts:
        checks += verdict.counts
        wire += verdict.wire
    return (
        f"{wanted.name}: {sum(scored)}/{len(wanted.scored)} scored and {sum(others)}/{len(wanted.unscored)} others "
        f"passed; "
        f"{checks['SUCCESS']} checks good, {checks['FAILURE']} failed, {checks['WARNING']} warned; "
        f"{suite.WIRE_SCHEMA}: {wire['SUCCESS']} good, {wire['FAILURE']} failed"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="keep what each scenario leaves behind in this folder")
    parser.add_argument("scenarios", nargs="*", help="run only these")
    options = parser.parse_args(arguments)
    if not suite.installed():
        print("The suite is not installed: run tests/tools/setup_peers.py.", file=sys.stderr)
        return 1
    sets = [*(suite.required(revision) for revision in REVISIONS), suite.back_compat()]
    with tempfile.TemporaryDirectory() as temporary:
        out = (options.out or Path(temporary)).resolve()
        verdicts = [run_set(wanted, set(options.scenarios), out) for wanted in sets]
    print(*(summary(wanted, found) for wanted, found in zip(sets, verdicts, strict=True)), sep="\n")
    everything = [verdict for found in verdicts for verdict in found]
    return 0 if everything and all(verdict.passed for verdict in everything) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
