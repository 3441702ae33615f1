"""A served engine in a process of its own, for as long as a ``with`` block lasts."""

import subprocess
import tempfile

from servetwin.engine.serve_options import ServeOptions
from servetwin.workloads.errors import EngineError
from servetwin.workloads.program.child_process import python_command, python_environment

_STOP_GRACE_S = 15.0


class EngineServer:
    """Starts ``python -m engine`` on a free port (unless ``options.http.port`` names one).

    Raises ``EngineError`` with the server's own reason when it cannot start.
    """

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        # Where it answers, once started.
        self.url = ""

    def __enter__(self) -> "EngineServer":
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            python_command("-m", "servetwin.engine", self.options.as_json()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=python_environment(),
        )
        assert self.process.stdout is not None
        try:
            self.url = self.process.stdout.readline().strip()
            if not self.url:
                self.process.wait()
                raise EngineError(self.last_error())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop it: requests that are running may finish, then the step log is complete."""
        self.process.terminate()
        try:
            self.process.wait(self.options.http.drain_s + _STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        finally:
            for pipe in (self.process.stdin, self.process.stdout, self._errors):
                assert pipe is not None
                pipe.close()

    def last_error(self) -> str:
        """Return the last line of the server's stderr."""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1] if lines else f"the engine ended with code {self.process.returncode}"
