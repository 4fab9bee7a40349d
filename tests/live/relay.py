"""Carries connections from one address to another: python -m tests.live.relay FROM TO [FROM TO]...

An address is HOST:PORT or the path of a Unix socket, which reaches across network namespaces.
"""

from __future__ import annotations

import asyncio
import sys

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def main(addresses: list[str]) -> None:
    pairs = zip(addresses[::2], addresses[1::2], strict=True)
    servers = [await listen(there, to) for there, to in pairs]
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def listen(address: str, to: str) -> asyncio.Server:
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await connect(to)
        await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    if address.startswith("/"):
        return await asyncio.start_unix_server(carry, address)
    host, port = address.split(":")
    return await asyncio.start_server(carry, host, int(port))


async def connect(address: str) -> Streams:
    if address.startswith("/"):
        return await asyncio.open_unix_connection(address)
    host, port = address.split(":")
    return await asyncio.open_connection(host, int(port))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
