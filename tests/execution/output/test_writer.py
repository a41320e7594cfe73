"""Writers to real pipes, sockets, terminals and files: nothing blocks, nothing is lost."""

import os
import socket
import tty

import pytest

from ompbind.execution.output.forwarder import open_writer


@pytest.fixture
def files():
    kept = []
    yield lambda *numbers: kept.extend(numbers) or numbers
    for number in kept:
        os.close(number)


def open_socket():
    return tuple(end.detach() for end in socket.socketpair())


def open_terminal():
    reader, writer = os.openpty()
    tty.setraw(writer)
    return reader, writer


@pytest.mark.parametrize(("make", "may_open"), [
    (os.pipe, True), (os.pipe, False), (open_socket, True), (open_terminal, True),
])  # fmt: skip
def test_bytes_that_do_not_fit_are_queued_and_written_in_order(files, monkeypatch, make, may_open):
    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", path)

    reader, writer = files(*make())
    with monkeypatch.context() as patch:
        if not may_open:  # as for a pipe of another user; the tests may run as root
            patch.setattr(os, "open", refuse)
        output = open_writer(writer, "")
    files(output.fd)
    blocks = [b"%07d\n" % number * 100 for number in range(500)]
    for block in blocks:
        output.put((block,))
    assert not output.flush()
    assert 0 < output.pending_bytes < 400_000
    assert os.get_blocking(writer), "other processes write there too"
    read = b""
    while len(read) < 400_000:
        read += os.read(reader, 5000)
        output.flush()
    assert read == b"".join(blocks)


def test_regular_files_are_written_at_the_shared_offset(files, tmp_path):
    (writer,) = files(os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT))
    os.write(writer, b"before ")
    output = open_writer(writer, "")
    files(output.fd)
    lines = [b"line %d\n" % number for number in range(3000)]  # more buffers than one write takes
    output.put(lines)
    assert output.flush()
    os.write(writer, b"after")
    assert (tmp_path / "file").read_bytes() == b"before " + b"".join(lines) + b"after"
