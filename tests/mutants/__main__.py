"""python -m tests.mutants [NAME OR PATTERN ...]: which mutants survive; exit code 1 if more than three do."""

import argparse
import sys

from tests.mutants.runner import (
    LIMIT,
    MOST_SURVIVORS,
    MutantError,
    chosen,
    mutants_of,
    outcomes,
    survivors_table,
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="names of mutants or files, * stands for anything; all if none")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for the tests of one mutant")
    given = parser.parse_args(arguments)
    try:
        mutants = chosen(mutants_of(), given.patterns)
        if not mutants:
            raise MutantError(f"no mutant is named {' or '.join(given.patterns)}.")
        found = outcomes(mutants, jobs=given.jobs, limit=given.limit, tell=lambda line: print(line, flush=True))
    except MutantError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(survivors_table(found))
    return int(sum(not outcome.killed for outcome in found) > MOST_SURVIVORS)


if __name__ == "__main__":
    sys.exit(main())
