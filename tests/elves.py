"""ELF files for tests, with needed libraries, for any architecture, word size and byte order."""

import struct


def make_elf(needed=(), *, machine=62, bits=64, little=True, runpath="", names=(), soname="", rpath=""):
    """Make the bytes of a file with a loaded segment and a dynamic section; `names` are further strings."""
    mark, wide = "<" if little else ">", bits == 64
    strings, at = b"\0", {}
    for text in (*needed, runpath, soname, rpath, *names):
        at[text] = len(strings)
        strings += text.encode() + b"\0"
    header, entry = (64, 56) if wide else (52, 32)
    base, start = 0x400000, header + 2 * entry
    number = "Q" if wide else "I"
    tags = [(1, at[text]) for text in needed] + ([(29, at[runpath])] if runpath else [])
    tags += [(number, at[text]) for number, text in ((14, soname), (15, rpath)) if text]
    size = struct.calcsize(f"{mark}{number}{number}")
    tags += [(5, base + start + (len(tags) + 2) * size), (0, 0)]
    dynamic = b"".join(struct.pack(f"{mark}{number}{number}", *tag) for tag in tags)
    whole = start + len(dynamic) + len(strings)

    def segment(kind, offset, length):
        if wide:
            return struct.pack(f"{mark}IIQQQQQQ", kind, 4, offset, base + offset, 0, length, length, 8)
        return struct.pack(f"{mark}IIIIIIII", kind, offset, base + offset, 0, length, length, 4, 4)

    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if little else 2, 1]) + bytes(9)
    rest = struct.pack(
        f"{mark}HHI{number}{number}{number}IHHHHHH", 3, machine, 1, 0, header, 0, 0, header, entry, 2, 0, 0, 0
    )
    return ident + rest + segment(1, 0, whole) + segment(2, start, len(dynamic)) + dynamic + strings


def put(path, data="", mode=0o755):
    """Write an executable file, an ELF file without data; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) and data else data or make_elf())
    path.chmod(mode)
    return str(path)
