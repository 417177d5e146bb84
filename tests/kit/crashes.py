"""A plugin of pytest for tests that end their process (llama.cpp may): each is one failed test, and what llama.cpp said
is shown.

pytest-xdist replaces the worker that is gone. With `--dist loadfile` it then runs the file's remaining tests, the one
that ended the worker first, again and again; and it gives work to new workers that have not collected yet, which is an
internal error.
"""

from __future__ import annotations

import os
import sys

import pytest

VOCABULARIES = "tests/model/test_vocab_"

try:
    from xdist.remote import Producer  # type: ignore[import-untyped]
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]
except ImportError:  # nothing runs side by side
    pass
else:

    class Files(LoadFileScheduling):  # type: ignore[misc]
        """Files shared out among workers; what ended one is not run again. Files of vocabularies have a worker
        together, since opening all of them takes longer than many of their tests.
        """

        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return VOCABULARIES if file.startswith(VOCABULARIES) else file

        def remove_node(self, node: WorkerController) -> str | None:
            units = self.assigned_work[node].values()
            ended = next(((unit, name) for unit in units for name, is_done in unit.items() if not is_done), None)
            if ended is not None:
                unit, name = ended
                unit[name] = True
            super().remove_node(node)
            return ended[1] if ended is not None else None

        def _reschedule(self, node: WorkerController) -> None:
            if node in self.registered_collections:
                super()._reschedule(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Files | None:
        return Files(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have llama.cpp's last words printed, where a test may have loaded it."""
    if abort := sys.modules.get("uad.llama.backend.abort"):
        captured = session.config.pluginmanager.getplugin("capturemanager")

        def tell(said: str) -> None:
            captured.suspend_global_capture(in_=True)
            sys.stderr.write(f"\n{os.environ.get('PYTEST_CURRENT_TEST', '')}: {said}\n")

        abort.listen(tell)
