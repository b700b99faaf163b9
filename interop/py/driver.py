"""Drives a CLI with the official Python SDK as a scenario says.

It prints what the SDK's user sees, one JSON object a line. The scenario is the
first argument (JSON, or a file) or standard input; interop/README.md has the
format. With --serve it prints an address of loopback instead, and plays the
file that each connection names. Names of options and methods are those of the TypeScript SDK, turned
into this SDK's own here.
"""

import asyncio
import dataclasses
import json
import os
import re
import select
import signal
import socket
import sys
import threading
import time

import claude_agent_sdk as sdk

OPTIONS = {
    "continue": "continue_conversation",
    "additionalDirectories": "add_dirs",
    "pathToClaudeCodeExecutable": "cli_path",
}
METHODS = {"mcpServerStatus": "get_mcp_status", "initializationResult": "get_server_info"}
TYPES = {"string": str, "number": float, "integer": int, "boolean": bool}

start = time.monotonic()


def show(event, **fields):
    line = {"event": event, "ms": round((time.monotonic() - start) * 1000), **fields}
    print(json.dumps(line, default=plain), flush=True)


def wire(message):
    """A message of the SDK in the form of the wire. The member class says that it has not all that the wire had."""
    m = json.loads(json.dumps(message, default=plain))
    if not isinstance(m, dict):
        return m
    match m.get("class"):
        case "AssistantMessage" | "UserMessage" as name:
            role = "assistant" if name == "AssistantMessage" else "user"
            m["type"] = role
            m["message"] = {"role": role, "class": name, "content": blocks(m.pop("content", None))}
            if role == "assistant":
                m["message"] |= {"model": m.get("model"), "id": m.get("message_id"), "usage": m.get("usage")}
        case "ResultMessage":
            m["type"] = "result"
            m["modelUsage"] = m.get("model_usage")
        case "StreamEvent":
            m["type"] = "stream_event"
        case "RateLimitEvent":
            m["type"] = "rate_limit_event"
        case _ if isinstance(m.get("data"), dict):
            return m["data"]  # a SystemMessage has the line as it came
    return m


BLOCKS = {
    "TextBlock": "text", "ThinkingBlock": "thinking", "ToolUseBlock": "tool_use", "ToolResultBlock": "tool_result",
    "ServerToolUseBlock": "server_tool_use",
}


def blocks(content):
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("class") in BLOCKS:
            block["type"] = BLOCKS[block.pop("class")]
    return content


def plain(value):
    """What JSON has no word for: the SDK's data classes, and all else as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"class": type(value).__name__, **{f.name: getattr(value, f.name) for f in dataclasses.fields(value)}}
    return str(value)


def snake(name):
    return re.sub(r"(?<!^)([A-Z])", lambda m: "_" + m[1].lower(), name)


def mark(file):
    """Makes a file one byte longer."""
    with open(file, "a") as f:
        f.write("x")


async def size(file, count):
    """Returns when a file has so many bytes."""
    while (os.path.getsize(file) if os.path.exists(file) else 0) < count:
        await asyncio.sleep(0.01)


async def behave(rule, event):
    """Does what a rule says instead of or before an answer."""
    if rule.get("mark"):
        mark(rule["mark"])
        await size(rule["mark"], rule.get("await", 0))
    if rule.get("hang"):
        try:
            await asyncio.Event().wait()
        finally:
            show(event, cancelled=True)
    if rule.get("throw"):
        raise RuntimeError(rule["throw"])


def take(rules, name):
    """The first rule for a tool that is not used up."""
    for rule in rules:
        if rule.get("tool") in (None, name) and rule.get("times") != 0:
            if rule.get("times"):
                rule["times"] -= 1
            return rule
    return {}


def make_options(scenario):
    options = {OPTIONS.get(k, snake(k)): v for k, v in scenario.get("options", {}).items()}
    thinking = options.get("thinking")
    if thinking and "budgetTokens" in thinking:
        thinking["budget_tokens"] = thinking.pop("budgetTokens")
    if "agents" in options:
        options["agents"] = {k: sdk.AgentDefinition(**v) for k, v in options["agents"].items()}
    if scenario.get("cli"):
        options["cli_path"] = scenario["cli"]
    if scenario.get("env"):
        options["env"] = scenario["env"]
    if scenario.get("stderr"):
        options["stderr"] = lambda line: show("stderr", data=line)
    if "canUseTool" in scenario:
        options["can_use_tool"] = can_use_tool(scenario["canUseTool"])
    if "hooks" in scenario:
        options["hooks"] = {
            name: [
                sdk.HookMatcher(matcher=r.get("matcher"), timeout=r.get("timeout"), hooks=[hook(name, r)])
                for r in rules
            ]
            for name, rules in scenario["hooks"].items()
        }
    for server, tools in scenario.get("tools", {}).items():
        servers = options.setdefault("mcp_servers", {})
        servers[server] = sdk.create_sdk_mcp_server(server, tools=[make_tool(server, r) for r in tools])
    return sdk.ClaudeAgentOptions(**options)


def can_use_tool(rules):
    async def callback(name, tool_input, context):
        show("canUseTool", tool=name, input=tool_input, context=context)
        rule = take(rules, name)
        await behave(rule, "canUseTool")
        answer = {snake(k): v for k, v in rule.get("answer", {"behavior": "allow"}).items()}
        if "updated_permissions" in answer:
            answer["updated_permissions"] = [sdk.PermissionUpdate.from_dict(u) for u in answer["updated_permissions"]]
        if answer["behavior"] == "allow":
            return sdk.PermissionResultAllow(**answer)
        return sdk.PermissionResultDeny(**answer)

    return callback


def hook(name, rule):
    async def callback(hook_input, tool_use_id, _context):
        show("hook", name=name, input=hook_input, toolUseID=tool_use_id)
        if rule.get("times") == 0:
            return {}
        if rule.get("times"):
            rule["times"] -= 1
        await behave(rule, "hook")
        # "continue" and "async" are words of the language; the SDK maps them back.
        return {{"continue": "continue_", "async": "async_"}.get(k, k): v for k, v in rule.get("output", {}).items()}

    return callback


def make_tool(server, rule):
    async def handler(args):
        show("tool", server=server, name=rule["name"], args=args)
        await behave(rule, "tool")
        result = rule.get("result", {"content": [{"type": "text", "text": "ok"}]})
        return {"is_error" if k == "isError" else k: v for k, v in result.items()}

    schema = {key: TYPES[kind] for key, kind in rule.get("input", {}).items()}
    about = {}
    if "annotations" in rule:
        about["annotations"] = sdk.ToolAnnotations(**rule["annotations"])
    return sdk.tool(rule["name"], rule.get("description", rule["name"]), schema, **about)(handler)


def matches(value, pattern):
    """A pattern is a part of the message: every member it names is equal."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(matches(value.get(k), v) for k, v in pattern.items())
    return value == pattern


def facts(message):
    """The members of a message that patterns can name, type included."""
    kinds = {
        "AssistantMessage": "assistant", "UserMessage": "user", "ResultMessage": "result",
        "StreamEvent": "stream_event", "RateLimitEvent": "rate_limit_event",
    }
    known = json.loads(json.dumps(message, default=plain))
    known["type"] = kinds.get(type(message).__name__, "system")
    return known


class Inbox:
    """Every message in order; each satisfies one wait."""

    def __init__(self):
        self.queue = asyncio.Queue()

    async def fill(self, stream):
        try:
            async for message in stream:
                show("message", message=wire(message))
                self.queue.put_nowait(facts(message))
        finally:
            self.queue.put_nowait(None)

    async def until(self, pattern):
        while (message := await self.queue.get()) is not None:
            if matches(message, pattern):
                return
        self.queue.put_nowait(None)
        raise RuntimeError(f"the stream ended before {json.dumps(pattern)}")


async def call(client, step):
    name = METHODS.get(step["call"], snake(step["call"]))
    try:
        result = await getattr(client, name)(*step.get("args", []))
        if step["call"] == "mcpServerStatus" and isinstance(result, dict):
            result = result.get("mcpServers")
        show("call", method=step["call"], result=result)
    except Exception as error:  # whatever it is, it is the answer
        show("call", method=step["call"], error=str(error))


async def one(content, fields):
    yield {
        "type": "user", "session_id": "default", "parent_tool_use_id": None,
        "message": {"role": "user", "content": content}, **fields,
    }


async def converse(client, steps):
    """Takes the steps of a conversation, then ends it."""
    inbox = Inbox()
    reader = asyncio.create_task(inbox.fill(client.receive_messages()))
    background = []
    try:
        for step in steps:
            if "send" in step:
                plain_text = isinstance(step["send"], str) and "fields" not in step
                await client.query(step["send"] if plain_text else one(step["send"], step.get("fields", {})))
            elif "until" in step:
                await inbox.until(step["until"])
            elif "call" in step:
                task = asyncio.create_task(call(client, step))
                background.append(task)
                if not step.get("background"):
                    await task
            elif "mark" in step:
                mark(step["mark"])
            elif "await" in step:
                await size(step["await"], 1)
            else:
                raise RuntimeError(f"unknown step {step}")
        await asyncio.gather(*background)
    finally:
        await client.disconnect()
        await asyncio.gather(reader, return_exceptions=True)
    if not reader.cancelled() and reader.exception():
        raise reader.exception()


async def drive(scenario):
    options = make_options(scenario)
    if "steps" in scenario:
        client = sdk.ClaudeSDKClient(options)
        await client.connect()
        await converse(client, scenario["steps"])
    else:
        await Inbox().fill(sdk.query(prompt=scenario["prompt"], options=options))


def play(given):
    if os.path.exists(given):
        with open(given, encoding="utf-8") as file:
            given = file.read()
    failed = False
    try:
        asyncio.run(drive(json.loads(given)))
    except Exception as error:  # what the SDK raises is what is asked for
        failed = True
        show("error", name=type(error).__name__, message=str(error))
    show("end", failed=failed)


def serve():
    """Plays each scenario in a process of its own, a fork, because importing the SDK takes a second."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    server = socket.create_server(("127.0.0.1", 0))
    print("%s:%d" % server.getsockname(), flush=True)
    while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
        connection = server.accept()[0]
        if os.fork() == 0:
            server.close()
            return fork(connection)
        connection.close()


def fork(connection):
    global start
    start = time.monotonic()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    file = connection.makefile().readline().strip()
    with open(file + ".stderr", "w") as stderr:
        os.dup2(stderr.fileno(), 2)
    os.dup2(connection.fileno(), 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # The end of the connection is an interrupt.
    threading.Thread(target=lambda: (connection.recv(1), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
    play(file)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        play(sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read())
