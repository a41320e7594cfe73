"""The sessions of benchmarking.md and bench-results.md can be recorded again."""

import pytest

from tests.packaging.scripts import load_script


@pytest.mark.long
def test_all_commands_of_the_pages_run(tmp_path, monkeypatch):
    recorder = load_script("docs/record_sessions.py")
    monkeypatch.setenv("OMPBIND_MAX_ROUNDS", "1")
    page = "".join(path.read_text() for path in recorder.PAGES)
    recorded = recorder.record_sessions(page, tmp_path)
    blocks, old = ([*recorder.BLOCK.finditer(text)] for text in (recorded, page))
    assert [block[1] for block in blocks] == [block[1] for block in old]
    assert recorder.BLOCK.sub("", recorded) == recorder.BLOCK.sub("", page)
    assert len(blocks) == page.count("```console") >= 3
    assert all("command:" in block[0] for block in blocks if "--results" in block[1] and ">" not in block[1])
