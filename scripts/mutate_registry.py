"""Change every fact of the registry once, and see whether a check notices.

    python scripts/mutate_registry.py --survivors FILE    what this transformers release lets pass
    python scripts/mutate_registry.py --only FILE         of those, what this one lets pass too

Each mutant (tests/registry/fact_mutants.py) is held against the checks of tests/registry on the
installed transformers, with the exhaustive table off for all but remote-code types. A fact of one
release shows on that release alone, so `make mutate` runs both, the second on what the first left.
The look-ups' own code is changed too (tests/registry/code_mutants.py), where --survivors is given.

Ends with 1 where anything survives both, or where a check fails before anything was changed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

CODE = "look-ups"


def main() -> int:
    """Run the mutants of this environment. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--survivors", type=Path, help="write what survives, and end with 0")
    parser.add_argument("--only", type=Path, help="take the mutants that a first run wrote")
    parser.add_argument("--types", nargs="*", help="these model types alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()

    import transformers

    import assay.models  # noqa: F401  (registers every spec)
    from assay.spec import get_specs

    names = options.types or [spec.model_type for spec in get_specs()]
    only = json.loads(options.only.read_text(encoding="utf-8")) if options.only else None
    if only is not None:
        names = [name for name in names if only.get(name)]
    began, survivors, total, broken = time.monotonic(), {}, 0, []
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        tasks = {pool.submit(run_type, name, only and only[name]): name for name in names}
        if only is None and not options.types:
            tasks[pool.submit(run_code)] = CODE
        for task in concurrent.futures.as_completed(tasks):
            name, (count, left, problems) = tasks[task], task.result()
            total += count
            broken += [f"{name}: {problem}" for problem in problems]
            if left:
                survivors[name] = left
            print(f"{name}: {count} mutants, {len(left)} survive here", flush=True)
    killed = total - sum(map(len, survivors.values()))
    print(
        f"transformers {transformers.__version__}: {total} mutants, {killed} killed, "
        f"{total - killed} survive, {time.monotonic() - began:.0f} s"
    )
    for problem in broken:
        print(f"wrong before anything was changed: {problem}")
    if options.survivors:
        options.survivors.parent.mkdir(parents=True, exist_ok=True)
        options.survivors.write_text(json.dumps(survivors, indent=1), encoding="utf-8")
        return bool(broken or CODE in survivors)
    for left in survivors.values():
        print("survives: " + "\nsurvives: ".join(left))
    return bool(broken or survivors)


def run_type(model_type: str, only: list[str] | None) -> tuple[int, list[str], list[str]]:
    """Mutants of a type, the survivors among them, and what is wrong without a change."""
    from tests.registry.checks import check_spec
    from tests.registry.fact_mutants import list_fact_mutants
    from tests.registry.killing import find_killer

    from assay.spec import get_spec

    spec = get_spec(model_type)
    problems = check_spec(spec)
    mutants = [m for m in list_fact_mutants(spec) if only is None or m.where in only]
    left = [mutant.where for mutant in mutants if find_killer(mutant) is None]
    return len(mutants), left, problems


def run_code() -> tuple[int, list[str], list[str]]:
    """The same for the precedences in the look-ups' code."""
    from tests.registry.code_mutants import run_code_mutants

    return run_code_mutants()


if __name__ == "__main__":
    raise SystemExit(main())
