"""`sha256_hex` is SHA-256, whichever module computes it, and does not load OpenSSL if it need not."""

import hashlib
import subprocess
import sys

import pytest

from ompbind.digest import sha256_hex

TEXTS = (b"", b"abc", bytes(range(256)) * 1000)


@pytest.mark.parametrize("absent", [(), ("_sha2",), ("_sha2", "_sha256")])
def test_it_is_the_digest_of_hashlib(monkeypatch, absent):
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    assert [sha256_hex(text) for text in TEXTS] == [hashlib.sha256(text).hexdigest() for text in TEXTS]


def test_openssl_is_not_loaded():
    if sys.version_info >= (3, 12):
        pytest.importorskip("_sha2", reason="this Python has only the SHA-256 of OpenSSL")
    else:
        pytest.importorskip("_sha256", reason="this Python has only the SHA-256 of OpenSSL")
    code = (
        "import sys; from ompbind.digest import sha256_hex; sha256_hex(b''); print('_hashlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
