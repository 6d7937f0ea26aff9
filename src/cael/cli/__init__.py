"""The command line: parse, call public functions, print.

Exit codes: 0 fine, 1 an error, 2 wrong usage, 3 the answer is not to be trusted, 4 the decision is to keep the
baseline (with --gate or --ship), 5 it is to test further (with --ship), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from cael.cli import decide, examine, improve, simulation
from cael.cli.config import config_of
from cael.common.version import __version__
from cael.io.specs import HELP

POLICIES = f"Policies:\n{HELP}"

INTERRUPTED = 130

app = App(
    name="cael",
    help="Off-policy evaluation: what would this new policy have earned, judged from the logs of the old one?",
    version=__version__,
    help_format="plaintext",
)
app.command(decide.evaluate, name="evaluate", help_epilogue=POLICIES)
app.command(decide.compare, name="compare", help_epilogue=POLICIES)
app.command(improve.learn, name="learn")
app.command(improve.watch, name="watch")
app.command(examine.audit, name="audit")
app.command(examine.plan, name="plan", help_epilogue=POLICIES)
app.command(simulation.demo)
app.command(simulation.simulate)
app.command(simulation.example)
app.command(simulation.estimators, name="estimators")
app.command(simulation.schema, name="schema")
app.command(
    "cael.experiments.command:reproduce",
    name="reproduce",
    help="Rerun an experiment of the paper: rows, table, figures, and a verdict on every claim.",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    from cael.common.visible import visible
    from cael.common.whole import clean_when_ended, remove_leftovers
    from cael.errors import CaelError

    clean_when_ended()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that the terminal has not
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app.config = config_of(words, app)
        app(words, exit_on_error=False, print_error=True)
    except CycloptsError:
        sys.exit(2)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - what is still buffered has nowhere to go
        sys.exit(0)
    except MemoryError:
        print("error: there is not enough memory for this log. Read fewer columns, or fewer rows.", file=sys.stderr)
        sys.exit(1)
    except ArithmeticError as error:
        print(f"error: a number overflowed ({error}). Divide rewards or scores by a constant.", file=sys.stderr)
        sys.exit(1)
    except (CaelError, OSError) as error:
        print(f"error: {visible(said(error))}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        remove_leftovers()
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        app.config = ()


def said(error: Exception) -> str:
    """The sentence of an error; of the system's with the file and without its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return " ".join(str(error).splitlines()) if isinstance(error, OSError) else str(error)
    return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
