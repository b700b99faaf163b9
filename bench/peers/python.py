"""Measures the official Python SDK against a fake CLI.

    python python.py MEASURE [N [SIZE]]

The measures, the environment and the line of JSON that comes out are those of
typescript.mjs beside it. Importing the SDK is never counted.
"""

import asyncio
import json
import os
import re
import statistics
import sys
import time

import claude_agent_sdk as sdk

CLI = os.environ.get("PARLEY_FAKECLI")


def options(**extra):
    return sdk.ClaudeAgentOptions(cli_path=CLI, setting_sources=[], **extra)


async def run(prompt, opts, each=lambda message: None):
    """Runs one prompt to its result."""
    result = None
    async for message in sdk.query(prompt=prompt, options=opts):
        each(message)
        if isinstance(message, sdk.ResultMessage):
            result = message
    if result is None or result.subtype != "success":
        raise RuntimeError(f"no success: {result}")


def rate(start, at):
    """The rate from the first to the last arrival, which holds no start-up, and the time since the query."""
    seconds = at[-1] - at[0]
    return {"count": len(at), "seconds": seconds, "perSecond": (len(at) - 1) / seconds, "total": at[-1] - start}


async def deltas(n, _):
    at = []

    def each(message):
        if isinstance(message, sdk.StreamEvent) and message.event["type"] == "content_block_delta":
            at.append(time.perf_counter())

    start = time.perf_counter()
    await run(f"deltas {n}", options(include_partial_messages=True), each)
    return rate(start, at)


async def messages(n, size):
    at = []

    def each(message):
        if isinstance(message, sdk.AssistantMessage):
            at.append(time.perf_counter())

    start = time.perf_counter()
    await run(f"messages {n} {size}", options(), each)
    return rate(start, at)


async def permissions(n, _):
    at = []

    async def allow(_name, _input, _context):
        at.append(time.perf_counter())
        return sdk.PermissionResultAllow()

    async with sdk.ClaudeSDKClient(options(can_use_tool=allow)) as client:
        await client.query(f"permissions {n}")
        async for _ in client.receive_response():
            pass
    micros = [(b - a) * 1e6 for a, b in zip(at, at[1:])]
    return {"count": len(at), "microseconds": statistics.median(micros), "mean": statistics.mean(micros)}


async def first(n, _):
    all_of_them = []
    for _ in range(n):
        at = []
        start = time.perf_counter()
        await run("echo hi", options(), lambda message: at.append(time.perf_counter()))
        all_of_them.append((at[0] - start) * 1e3)
    return {"milliseconds": statistics.median(all_of_them), "all": all_of_them}


async def memory(n, _):
    before = resident()
    clients = [sdk.ClaudeSDKClient(options()) for _ in range(n)]

    async def session(client):
        await client.connect()
        await client.query("echo hi")
        async for _ in client.receive_response():
            pass

    # Sequential where the SDK is: connect and disconnect belong to one task.
    for client in clients:
        await session(client)
    after = resident()
    for client in clients:
        await client.disconnect()
    return {"sessions": n, "rssKiB": after["VmRSS"], "peakKiB": after["VmHWM"], "importedKiB": before["VmRSS"]}


def resident():
    """What the kernel says this process holds, in KiB."""
    with open("/proc/self/status", encoding="ascii") as status:
        return {k: int(v) for k, v in re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", status.read(), re.M)}


MEASURES = {f.__name__: f for f in (deltas, messages, permissions, first, memory)}


def main():
    args = sys.argv[1:] + [""] * 3
    measure, n, size = args[0], int(args[1] or 1), int(args[2] or 2400)
    if measure not in MEASURES or not CLI or n < 1:
        sys.exit(f"usage: python python.py {'|'.join(MEASURES)} [N [SIZE]], with PARLEY_FAKECLI set")
    numbers = asyncio.run(MEASURES[measure](n, size))
    print(json.dumps({"peer": "python", "version": sdk.__version__, "measure": measure, **numbers}))


if __name__ == "__main__":
    main()
