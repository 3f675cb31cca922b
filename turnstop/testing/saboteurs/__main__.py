"""`python -m turnstop.testing.saboteurs`: play the matrix and print it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from .._run import MakeProbe
from ..inventory import Missing, load_probes
from ._matrix import Matrix, play_matrix
from ._print import table

USUAL = ("local", "codex", "a2a")


def main(argv: Sequence[str] | None = None) -> int:
    """Play it; 1 where something was missed, or is red without a saboteur."""
    args = _parser().parse_args(argv)
    probes: list[MakeProbe] = []
    for name in args.adapters or USUAL:
        try:
            found = load_probes(name)
        except (LookupError, Missing) as error:
            print(error, file=sys.stderr)
            return 2
        probes += found if args.variants else found[:1]
    try:
        matrix = play_matrix(probes, only=args.only, everything=args.everything)
    except ValueError as error:  # there is no such obligation
        print(error, file=sys.stderr)
        return 2
    _show(matrix, args)
    return int(bool(matrix.faults))


def _show(matrix: Matrix, args: argparse.Namespace) -> None:
    if args.json == "-":
        print(json.dumps(matrix.to_json(), indent=1))
        return
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(matrix.to_json(), file, indent=1)
    print(table(matrix, seen=args.seen))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m turnstop.testing.saboteurs")
    parser.add_argument("adapters", nargs="*", help=f"by name; {', '.join(USUAL)} by default")
    parser.add_argument("--only", action="append", default=[], help="this obligation")
    parser.add_argument("--variants", action="store_true", help="over all probes of an adapter")
    parser.add_argument("--seen", action="store_true", help="tell what was seen in each cell")
    parser.add_argument(
        "--everything",
        action="store_true",
        help="each saboteur against each obligation, also those it need not be caught by",
    )
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
