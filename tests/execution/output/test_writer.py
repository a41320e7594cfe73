"""Writers to real pipes, sockets, terminals, files and full devices: nothing blocks, nothing is lost."""

import os
import socket
import stat

import pytest

from ompbind.execution.output.writer import NonBlockingWriter, is_same_file, open_writer


@pytest.fixture
def files():
    """Collects descriptors; all are closed after the test."""
    kept = []
    yield lambda *numbers: kept.extend(numbers) or numbers
    for number in kept:
        try:
            os.close(number)
        except OSError:
            pass


@pytest.fixture
def writers():
    """Opens writers that are closed after the test."""
    opened = []

    def begin(number):
        opened.append(open_writer(number, "standard output"))
        return opened[-1]

    yield begin
    for output in opened:
        os.close(output.fd)


def open_pipe():
    return os.pipe()


def open_socket():
    ends = socket.socketpair()
    return tuple(end.detach() for end in ends)


def open_terminal():
    reader, writer = os.openpty()
    os.set_blocking(reader, True)
    import tty

    tty.setraw(writer)
    return reader, writer


@pytest.mark.parametrize("make", [open_pipe, open_socket, open_terminal])
def test_bytes_that_do_not_fit_are_queued_and_written_in_order(files, writers, make):
    reader, writer = files(*make())
    output = writers(writer)
    wanted = [b"%07d\n" % number * 100 for number in range(1000)]
    for block in wanted:
        output.put((block,))
    assert not output.flush()
    assert 0 < output.pending_bytes < 800_000
    assert os.get_blocking(writer), "other processes write there too"
    read = b""
    while output.pending_bytes:
        read += os.read(reader, 5000)
        output.flush()
    while len(read) < 800_000:
        read += os.read(reader, 5000)
    assert read == b"".join(wanted)


def test_files_that_cannot_be_opened_again_are_polled_before_writes(files, writers, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", path)

    reader, writer = files(*os.pipe())
    monkeypatch.setattr(os, "open", refuse)  # as for a pipe of another user; the tests may run as root
    output = writers(writer)
    monkeypatch.undo()
    assert os.path.samestat(os.fstat(output.fd), os.fstat(writer))
    assert os.get_blocking(output.fd)
    output.put((b"x" * 30_000, b"y" * 70_000))
    assert not output.flush()
    assert os.get_blocking(writer)
    read = b""
    while len(read) < 100_000:
        read += os.read(reader, 4096)
        output.flush()
    assert read == b"x" * 30_000 + b"y" * 70_000


def test_regular_files_are_written_at_the_shared_offset(files, writers, tmp_path):
    (writer,) = files(os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT))
    os.write(writer, b"before ")
    output = writers(writer)
    output.put([b"line %d\n" % number for number in range(3000)])  # more buffers than one write takes
    assert output.flush()
    os.write(writer, b"after")
    text = (tmp_path / "file").read_bytes()
    assert text == b"before " + b"".join(b"line %d\n" % number for number in range(3000)) + b"after"


def test_a_closed_reader_is_not_an_error(files, writers):
    reader, writer = os.pipe()
    files(writer)
    output = writers(writer)
    os.close(reader)
    output.put((b"x",))
    assert output.flush()
    assert (output.broken, output.error_text, output.pending_bytes) == (True, "", 0)
    output.put((b"y",))
    assert output.pending_bytes == 0


def test_a_full_device_is_reported(files, writers):
    (writer,) = files(os.open("/dev/full", os.O_WRONLY))
    output = writers(writer)
    output.put((b"x",))
    assert output.flush()
    assert output.broken
    assert output.error_text == "cannot write to standard output: No space left on device"


def test_a_closed_descriptor_discards_everything(writers):
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    output = writers(number)
    output.put((b"x",))
    assert output.flush()
    assert not output.broken


def test_a_buffer_continues_after_a_partial_write():
    taken = []

    def write(buffers):
        if len(taken) > 20:
            raise BlockingIOError
        taken.append(b"".join(buffers)[:3])
        return len(taken[-1])

    output = NonBlockingWriter("", -1, write)
    output.put((b"ab", b"", memoryview(b"cdefgh"), bytearray(b"i"), b"jk"))
    assert output.flush()
    assert taken == [b"abc", b"def", b"ghi", b"jk"]


def test_is_same_file(files, tmp_path):
    reader, writer = files(*os.pipe())
    first, second = files(*(os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(2)))
    assert stat.S_ISFIFO(os.fstat(reader).st_mode)
    assert is_same_file(first, second)
    assert not is_same_file(first, writer)
    assert not is_same_file(first, 9999)
