"""assay VERB ...: finds the verb, runs it, turns its errors into one message and an exit code.

Exit codes: 0 done (verify: pass), 1 verify: fail, 2 an error, or verify: could not judge,
130 and more: ended by a signal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from assay.cli import bench, diagnose, env, export, generate, inspect, models, tune, verify
from assay.cli.output import print_json
from assay.errors import AssayError
from assay.version import __version__

__all__ = ["build_parser", "main"]

VERBS = (export, verify, diagnose, generate, tune, bench, inspect, env, models)
EXIT_ERROR = 2
EXIT_SIGNAL = 128
EXIT_BROKEN_PIPE = EXIT_SIGNAL + 13  # SIGPIPE, which Windows doesn't name


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    parser = argparse.ArgumentParser(
        prog="assay",
        description="Turns a Hugging Face language model into one that runs, and proves it.",
    )
    parser.add_argument("--version", action="version", version=f"assay {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        verb.add_parser(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    args = build_parser().parse_args(arguments)
    try:
        with _unwinding_on_signals():
            code: int = args.run(args)
            sys.stdout.flush()
    except AssayError as exc:
        _print_error(exc, as_json=args.json)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("assay: interrupted; nothing half-written is left", file=sys.stderr)
        return EXIT_SIGNAL + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has left; Python would flush the rest into the void and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return code


@contextlib.contextmanager
def _unwinding_on_signals() -> Iterator[None]:
    """Let the first SIGINT or SIGTERM unwind the stack, and none disturb it after that.

    A second one in the middle of the clean-up would leave what the first was to remove. SIGINT
    that is ignored, as in a shell's background, stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        for other in previous:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(EXIT_SIGNAL + number)

    previous = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        previous[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _print_error(error: AssayError, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "error": type(error).__name__,
                "where": error.where,
                "found": error.found,
                "expected": error.expected,
                "next_step": error.next_step,
            }
        )
    else:
        print(f"assay: {error}", file=sys.stderr)
