"""Sinks on real pipes, sockets, terminals, files and full devices: nothing waits, nothing is lost."""

import os
import socket
import stat

import pytest

from ompbind.execution.output.writer import NonBlockingWriter, open_writer, same_file


@pytest.fixture
def files():
    """Keeps numbers of open files; all are closed after the test."""
    kept = []
    yield lambda *numbers: kept.extend(numbers) or numbers
    for number in kept:
        try:
            os.close(number)
        except OSError:
            pass


@pytest.fixture
def sinks():
    """Opens sinks that are closed after the test."""
    opened = []

    def begin(number):
        opened.append(open_writer(number, "standard output"))
        return opened[-1]

    yield begin
    for output in opened:
        os.close(output.file)


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
def test_what_does_not_fit_waits_and_comes_out_in_order(files, sinks, make):
    reader, writer = files(*make())
    output = sinks(writer)
    wanted = [b"%07d\n" % number * 100 for number in range(1000)]
    for block in wanted:
        output.put((block,))
    assert not output.flush()
    assert 0 < output.size < 800_000
    assert os.get_blocking(writer), "others write there too"
    read = b""
    while output.size:
        read += os.read(reader, 5000)
        output.flush()
    while len(read) < 800_000:
        read += os.read(reader, 5000)
    assert read == b"".join(wanted)


def test_what_cannot_be_opened_again_is_asked_first(files, sinks, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", path)

    reader, writer = files(*os.pipe())
    monkeypatch.setattr(os, "open", refuse)  # a pipe of another user; tests may run as one who may everything
    output = sinks(writer)
    monkeypatch.undo()
    assert os.path.samestat(os.fstat(output.file), os.fstat(writer))
    assert os.get_blocking(output.file)
    output.put((b"x" * 30_000, b"y" * 70_000))
    assert not output.flush()
    assert os.get_blocking(writer)
    read = b""
    while len(read) < 100_000:
        read += os.read(reader, 4096)
        output.flush()
    assert read == b"x" * 30_000 + b"y" * 70_000


def test_files_get_everything_at_the_place_that_all_share(files, sinks, tmp_path):
    (writer,) = files(os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT))
    os.write(writer, b"before ")
    output = sinks(writer)
    output.put([b"line %d\n" % number for number in range(3000)])  # more buffers than one write takes
    assert output.flush()
    os.write(writer, b"after")
    text = (tmp_path / "file").read_bytes()
    assert text == b"before " + b"".join(b"line %d\n" % number for number in range(3000)) + b"after"


def test_a_reader_that_has_gone_is_no_trouble(files, sinks):
    reader, writer = os.pipe()
    files(writer)
    output = sinks(writer)
    os.close(reader)
    output.put((b"x",))
    assert output.flush()
    assert (output.broken, output.trouble, output.size) == (True, "", 0)
    output.put((b"y",))
    assert output.size == 0


def test_a_full_device_is_told(files, sinks):
    (writer,) = files(os.open("/dev/full", os.O_WRONLY))
    output = sinks(writer)
    output.put((b"x",))
    assert output.flush()
    assert output.broken
    assert output.trouble == "standard output cannot be written any more: No space left on device"


def test_what_is_not_open_swallows_everything(sinks):
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    output = sinks(number)
    output.put((b"x",))
    assert output.flush()
    assert not output.broken


def test_a_buffer_is_written_from_where_the_last_write_ended():
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


def test_same_file(files, tmp_path):
    reader, writer = files(*os.pipe())
    one, other = files(*(os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(2)))
    assert stat.S_ISFIFO(os.fstat(reader).st_mode)
    assert same_file(one, other)
    assert not same_file(one, writer)
    assert not same_file(one, 9999)
