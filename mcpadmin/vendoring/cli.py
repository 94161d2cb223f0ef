import argparse
import sys
from collections.abc import Sequence

from mcpadmin.vendoring.copying import vendor_all
from mcpadmin.vendoring.lock import problems
from mcpadmin.vendoring.manifest import read_manifest
from mcpadmin.vendoring.npm import VendorError, latest_version


def main(arguments: Sequence[str]) -> int:
    """Exit status 0: done and everything matches; 1: a difference or a failure, reported on stderr or in the list."""
    parser = argparse.ArgumentParser(prog="python -m mcpadmin.vendoring", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--verify", action="store_true", help="compare the files with the lock, without a network")
    choice.add_argument("--outdated", action="store_true", help="ask npm for newer versions; changes nothing")
    options = parser.parse_args(arguments)
    try:
        if options.verify:
            found = problems()
            print("\n".join(found) or "all vendored files match the lock")
            return 1 if found else 0
        packages = read_manifest()
        if options.outdated:
            newer = 0
            for package in packages:
                latest = latest_version(package.name)
                if latest != package.version:
                    newer += 1
                    print(f"{package.name}: {package.version} here, {latest} is the latest")
            print("nothing newer" if not newer else f"{newer} with another version")
            return 0
        vendor_all(packages)
        print("vendored " + ", ".join(package.spec for package in packages))
        return 0
    except VendorError as problem:
        print(problem, file=sys.stderr)
        return 1
