"""Secret values do not get into files."""

from ompbind.bench.events import make_header, mask_session, render_event
from tests.bench.fakes import make_session


def test_all_words_of_a_session_are_masked():
    session = make_session(
        command=("env", "HF_TOKEN=s3cret", "./app", "size=5"), options=("--env", "API_KEY=s3cret")
    )
    candidate = session.candidates[1].replace(
        options=("--env", "API_KEY=s3cret"), choices=(("env", "API_KEY=s3cret"),)
    )
    masked = mask_session(session.replace(candidates=(candidate,)))
    assert "s3cret" not in render_event(make_header(masked))
    assert masked.command == ("env", "HF_TOKEN=***", "./app", "size=5")
    assert masked.candidates[0].options == ("--env", "API_KEY=***")
