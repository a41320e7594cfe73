"""A web server with one thread, which computes a little for each request: group_server.py PORT"""

import asyncio
import hashlib
import sys
from contextlib import suppress


async def answer(reader, writer):
    """Answer the requests of one connection until the client closes it."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while await reader.readuntil(b"\r\n\r\n"):
            body = hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 1000).hex().encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
    writer.close()


async def serve(port):
    async with await asyncio.start_server(answer, "127.0.0.1", port) as server:
        await server.serve_forever()


asyncio.run(serve(int(sys.argv[1])))
