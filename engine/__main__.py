"""``python -m servetwin.engine OPTIONS``: serve what ``ServeOptions.as_json`` wrote.

The first line on stdout is the URL, the last on stderr why it failed. The server ends when its
standard input closes, so it never outlives the program that started it.
"""

import os
import signal
import sys
from threading import Thread

from servetwin.engine.checkpoint.find_model import find_model
from servetwin.engine.core.core_process import StartedCore, bundled
from servetwin.engine.serve_options import ServeOptions
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.program.child import started_child

# A core's process, and what it imports with torch while its options are read.
CORE = "servetwin.engine.core.core_process:run_core", "servetwin.engine.core.build"


def main() -> int:
    """Serve until the input closes; return the exit code."""
    Thread(target=_end_with_stdin, daemon=True).start()
    try:
        with started_child(*CORE, name="servetwin-core") as child:
            options = ServeOptions.from_json(sys.argv[1])
            model, build = find_model(options.model), bundled(options)
            core = StartedCore.of(child, build)
            from servetwin.engine.http.serving import serve_core  # while the core imports torch

            name, tokenizer = model.config.name, model.tokenizer()
            serve_core(build, name, options.http, _say, tokenizer, first=core)
    except ServetwinError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _end_with_stdin() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
