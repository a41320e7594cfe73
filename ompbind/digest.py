"""SHA-256 without OpenSSL: `hashlib` loads it, which takes as long as reading a machine and planning."""


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 digest of some bytes, as hexadecimal digits."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found]  # since Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found]
        except ImportError:  # a Python that has only OpenSSL's
            from hashlib import sha256
    return str(sha256(data).hexdigest())
