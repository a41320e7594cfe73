"""The sessions of benchmarking.md, bench-results.md and threads.md can be recorded again."""

from importlib import util

import pytest

from tests.live.conftest import required
from tests.test_docs import ROOT


@pytest.mark.long
def test_all_commands_of_the_pages_run(tmp_path, monkeypatch):
    required("gcc")
    spec = util.spec_from_file_location("record_sessions", ROOT / "docs/record_sessions.py")
    recorder = util.module_from_spec(spec)
    spec.loader.exec_module(recorder)
    monkeypatch.setenv("OMPBIND_MAX_ROUNDS", "1")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # threads that wait leave the CPUs to other tests
    page = "".join(path.read_text() for path in recorder.PAGES)
    recorded = recorder.record_sessions(page, tmp_path)
    blocks, old = ([*recorder.BLOCK.finditer(text)] for text in (recorded, page))
    assert [block[1] for block in blocks] == [block[1] for block in old]
    assert recorder.BLOCK.sub("", recorded) == recorder.BLOCK.sub("", page)
    assert len(blocks) == page.count("```console") >= 5
    assert all("command:" in block[0] for block in blocks if "--results" in block[1])
