"""Scenarios for what the end-to-end tests of the Python SDK check, with a scripted model.

The first argument is a JSON file: {"cli": path, "scenarios": {name: {"url": of its API, "dir": its project}}}.
Each scenario prints one line: {"name": ..., "problem": null or text}. HOME is one for all of them.
"""

import asyncio
import json
import os
import shutil
import sys
import traceback
import uuid

import claude_agent_sdk as sdk
from claude_agent_sdk import AgentDefinition, ClaudeSDKClient, HookMatcher

SCENARIOS = {}


def scenario(f):
    SCENARIOS[f.__name__.replace("_", "-")] = f
    return f


class Place:
    """Where a scenario runs: its project directory, its API and the CLI."""

    def __init__(self, cli, url, dir):
        self.cli, self.url, self.dir = cli, url, dir

    def write(self, name, text):
        file = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "w", encoding="utf-8") as f:
            f.write(text)

    def options(self, env=None, **more):
        env = {"ANTHROPIC_BASE_URL": self.url, **(env or {})}
        return sdk.ClaudeAgentOptions(cli_path=self.cli, env=env, **{"cwd": self.dir, **more})

    async def query(self, prompt="Hello.", **more):
        return [m async for m in sdk.query(prompt=prompt, options=self.options(**more))]

    async def turns(self, *prompts, **more):
        """The messages of each turn of one client."""
        async with ClaudeSDKClient(self.options(**more)) as client:
            return [await turn(client, p) for p in prompts]


async def turn(client, prompt):
    await client.query(prompt if isinstance(prompt, str) else one(prompt))
    return [m async for m in client.receive_response()]


async def one(message):
    yield message


def user(text, **more):
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, **more}


def of(messages, kind):
    return [m for m in messages if isinstance(m, kind)]


def init(messages):
    return next(m.data for m in messages if isinstance(m, sdk.SystemMessage) and m.subtype == "init")


def result(messages, subtype="success"):
    (r,) = of(messages, sdk.ResultMessage)
    assert r.subtype == subtype, r
    return r


def blocks(messages, kind):
    return [b for m in of(messages, sdk.AssistantMessage) for b in m.content if isinstance(b, kind)]


def tool_results(messages):
    return [b for m in of(messages, sdk.UserMessage) if isinstance(m.content, list) for b in m.content if isinstance(b, sdk.ToolResultBlock)]


# Agents and settings


@scenario
async def agent_in_client(p):
    agents = {"checker": AgentDefinition(description="Checks.", prompt="You check.", tools=["Read"], model="sonnet")}
    (messages,) = await p.turns("Hello.", agents=agents, max_turns=1)
    assert "checker" in init(messages)["agents"], init(messages)["agents"]


@scenario
async def agent_in_query(p):
    messages = await p.query(agents={"asker": AgentDefinition(description="Asks.", prompt="You ask.")}, max_turns=1)
    assert "asker" in init(messages)["agents"], init(messages)["agents"]


def many():
    agents = {f"big-{i}": AgentDefinition(description=f"Agent {i}.", prompt=f"{i} " + "long " * 2700) for i in range(20)}
    assert sum(len(a.prompt) for a in agents.values()) > 260_000
    return agents


@scenario
async def big_agents_in_query(p):
    messages = await p.query(agents=many(), max_turns=1)
    assert set(many()) <= set(init(messages)["agents"])
    result(messages)


@scenario
async def big_agents_in_client(p):
    (messages,) = await p.turns("Hello.", agents=many(), max_turns=1)
    assert isinstance(init(messages)["agents"], list) and set(many()) <= set(init(messages)["agents"])
    result(messages)


@scenario
async def agent_from_file(p):
    p.write(".claude/agents/from-file.md", "---\nname: from-file\ndescription: Comes from a file.\ntools: Read\n---\n\nYou answer briefly.\n")
    (messages,) = await p.turns("Hello.", setting_sources=["project"], max_turns=1)
    assert "from-file" in init(messages)["agents"], init(messages)["agents"]
    assert of(messages, sdk.AssistantMessage)
    result(messages)


@scenario
async def sources_by_default(p):
    p.write(".claude/settings.local.json", '{"outputStyle": "style-of-this-machine"}')
    (messages,) = await p.turns("Hello.", max_turns=1)
    assert init(messages)["output_style"] == "style-of-this-machine", init(messages)["output_style"]


@scenario
async def sources_of_the_user(p):
    p.write(".claude/commands/theirs.md", "---\ndescription: A command.\n---\n\nDo it.\n")
    (messages,) = await p.turns("Hello.", setting_sources=["user"], max_turns=1)
    assert "theirs" not in init(messages)["slash_commands"]
    (messages,) = await p.turns("Hello.", setting_sources=["user", "project"], max_turns=1)
    assert "theirs" in init(messages)["slash_commands"]


@scenario
async def sources_of_all(p):
    p.write(".claude/settings.local.json", '{"outputStyle": "style-of-this-machine"}')
    (messages,) = await p.turns("Hello.", setting_sources=["user", "project", "local"], max_turns=1)
    assert init(messages)["output_style"] == "style-of-this-machine", init(messages)["output_style"]


# The conversation


@scenario
async def clear_resets_the_conversation(p):
    first, cleared = await p.turns("Hello.", "/clear", max_turns=1)
    (reset,) = of(cleared, sdk.ConversationResetMessage)
    assert reset.session_id == result(first).session_id and reset.new_conversation_id and reset.uuid, reset
    assert result(cleared).session_id not in ("", None, result(first).session_id)


@scenario
async def permission_mode_changes(p):
    async with ClaudeSDKClient(p.options(permission_mode="default")) as client:
        await client.set_permission_mode("acceptEdits")
        edited = await turn(client, "Write it.")
        assert [r.is_error for r in tool_results(edited)] in ([None], [False]), edited
        await client.set_permission_mode("default")
        denied = await turn(client, "Write another.")
        assert [r.is_error for r in tool_results(denied)] == [True], denied
    assert os.path.exists(os.path.join(p.dir, "one.txt")) and not os.path.exists(os.path.join(p.dir, "two.txt"))


@scenario
async def model_changes(p):
    async with ClaudeSDKClient(p.options()) as client:
        models = [blocks_model(await turn(client, "Which?"))]
        for model in ("claude-haiku-4-5", None):
            await client.set_model(model)
            models.append(blocks_model(await turn(client, "Which?")))
    assert models[1] == "claude-haiku-4-5" and models[0] == models[2] != models[1], models


def blocks_model(messages):
    result(messages)
    return of(messages, sdk.AssistantMessage)[-1].model


@scenario
async def interrupt_at_once(p):
    async with ClaudeSDKClient(p.options()) as client:
        await client.query("Count.")
        await client.interrupt()
        messages = [m async for m in client.receive_response()]
        assert of(messages, sdk.ResultMessage), messages
        result(await turn(client, "Hello."))


@scenario
async def api_error_raises(p):
    got, raised = [], None
    try:
        async for m in sdk.query(prompt="Hello.", options=p.options(model="claude-of-no-kind", max_turns=1)):
            got.append(m)
    except sdk.ResultError as e:
        raised = e
    r = result(got)
    assert isinstance(raised, sdk.ProcessError) and r.is_error and raised.exit_code is not None, raised
    assert r.result and r.result.strip() in str(raised) and "error result: success" not in str(raised), str(raised)
    for name in ("subtype", "result", "session_id", "terminal_reason", "api_error_status"):
        assert getattr(raised, name) == getattr(r, name), name
    assert raised.data.get("uuid") == r.uuid and raised.terminal_reason == "api_error", raised.data


# Subagents


async def delegate(p, **more):
    greeter = AgentDefinition(description="Greets.", prompt="You greet.", model="haiku", background=False)
    messages = await p.query("Have it greet.", agents={"greeter": greeter}, allowed_tools=["Agent", "Task"], max_turns=4, **more)
    assert not result(messages).is_error
    calls = {b.id for m in of(messages, sdk.AssistantMessage) if not m.parent_tool_use_id for b in m.content
             if isinstance(b, sdk.ToolUseBlock) and b.name in ("Agent", "Task")}
    assert len(calls) == 1, calls
    inside = [m for m in of(messages, sdk.AssistantMessage) if m.parent_tool_use_id]
    return messages, calls, [m for m in inside if any(isinstance(b, sdk.TextBlock) for b in m.content)]


@scenario
async def subagent_text_forwarded(p):
    _, calls, texts = await delegate(p, forward_subagent_text=True)
    assert texts and {m.parent_tool_use_id for m in texts} == calls, texts


@scenario
async def subagent_text_kept(p):
    _, _, texts = await delegate(p)
    assert not texts, texts


@scenario
async def subagent_transcripts(p):
    store = sdk.InMemorySessionStore()
    messages, calls, _ = await delegate(p, session_store=store)
    session = result(messages).session_id
    at = {"directory": p.dir}
    local = {a: sdk.get_subagent_messages(session, a, **at) for a in sdk.list_subagents(session, **at)}
    kept = await sdk.list_subagents_from_store(store, session, **at)
    mirrored = {a: await sdk.get_subagent_messages_from_store(store, session, a, **at) for a in kept}
    assert local and local.keys() == mirrored.keys(), (local, mirrored)
    for said in (*local.values(), *mirrored.values()):
        assert said and {m.parent_tool_use_id for m in said} == calls and {m.parent_agent_id for m in said} == {None}, said


# Hooks


def hooks(seen, output, *events, matcher="Bash"):
    async def hook(hook_input, tool_use_id, _context):
        seen.append({**hook_input, "id": tool_use_id})
        return output

    return {e: [HookMatcher(matcher=None if e == "Notification" else matcher, hooks=[hook])] for e in events}


def specific(event, **fields):
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


@scenario
async def hook_before_adds_context(p):
    seen = []
    output = specific("PreToolUse", permissionDecision="allow", permissionDecisionReason="Fine.", additionalContext="NOTE BEFORE")
    (messages,) = await p.turns("Run it.", allowed_tools=["Bash"], hooks=hooks(seen, output, "PreToolUse"))
    assert [s["tool_use_id"] for s in seen] == [seen[0]["id"]] and seen[0]["tool_use_id"], seen
    result(messages)


@scenario
async def hook_after_knows_the_call(p):
    seen = []
    output = specific("PostToolUse", additionalContext="NOTE AFTER")
    (messages,) = await p.turns("Run it.", allowed_tools=["Bash"], hooks=hooks(seen, output, "PostToolUse"))
    assert [s["tool_use_id"] for s in seen] == [blocks(messages, sdk.ToolUseBlock)[0].id], seen
    result(messages)


@scenario
async def hook_of_notifications(p):
    seen = []
    (messages,) = await p.turns("Hello.", hooks=hooks(seen, specific("Notification", additionalContext="Noted."), "Notification"))
    assert all(s["hook_event_name"] == "Notification" and s["notification_type"] for s in seen), seen
    result(messages)


@scenario
async def hooks_of_several_events(p):
    seen = []
    await p.turns("Run it.", allowed_tools=["Bash"], hooks=hooks(seen, {}, "Notification", "PreToolUse", "PostToolUse"))
    assert [s["hook_event_name"] for s in seen if s["hook_event_name"] != "Notification"] == ["PreToolUse", "PostToolUse"], seen


@scenario
async def hook_denies_with_reason(p):
    seen = []
    output = {"reason": "Not here.", "systemMessage": "Blocked.", **specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="NO SHELL")}
    (messages,) = await p.turns("Run it.", allowed_tools=["Bash", "Write"], hooks=hooks(seen, output, "PreToolUse"))
    (denied,) = tool_results(messages)
    assert seen[0]["tool_name"] == "Bash" and denied.is_error and "NO SHELL" in str(denied.content), denied
    result(messages)


@scenario
async def hook_stops_the_turn(p):
    seen = []
    output = {"continue_": False, "stopReason": "Enough.", "reason": "A test.", "systemMessage": "Stopped."}
    (messages,) = await p.turns("Run it.", allowed_tools=["Bash"], hooks=hooks(seen, output, "PostToolUse"))
    assert [s["tool_name"] for s in seen] == ["Bash"] and of(messages, sdk.ResultMessage), seen


@scenario
async def hook_after_adds_context(p):
    seen = []
    output = {"systemMessage": "More.", "reason": "Feedback.", "suppressOutput": False, **specific("PostToolUse", additionalContext="NOTE AFTER")}
    (messages,) = await p.turns("Run it.", allowed_tools=["Bash"], hooks=hooks(seen, output, "PostToolUse"))
    assert len(seen) == 1
    result(messages)


# Partial messages


async def think(p):
    (messages,) = await p.turns("Think.", include_partial_messages=True, model="claude-sonnet-4-5", max_turns=2, env={"MAX_THINKING_TOKENS": "8000"})
    return messages, [e.event for e in of(messages, sdk.StreamEvent)]


@scenario
async def partial_events(p):
    messages, events = await think(p)
    assert isinstance(messages[0], sdk.SystemMessage) and messages[0].subtype == "init", messages[0]
    want = {"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}
    assert {e["type"] for e in events} >= want, events
    assert blocks(messages, sdk.ThinkingBlock) and blocks(messages, sdk.TextBlock)
    assert isinstance(messages[-1], sdk.ResultMessage) and messages[-1].subtype == "success"


@scenario
async def partial_thoughts(p):
    messages, events = await think(p)
    deltas = [e["delta"]["thinking"] for e in events if e["type"] == "content_block_delta" and e["delta"]["type"] == "thinking_delta"]
    assert deltas and "".join(deltas) == blocks(messages, sdk.ThinkingBlock)[0].thinking == "Two and two are 4.", deltas


@scenario
async def no_partial_events_by_default(p):
    (messages,) = await p.turns("Hello.", model="claude-sonnet-4-5", max_turns=2)
    assert not of(messages, sdk.StreamEvent) and of(messages, sdk.SystemMessage) and of(messages, sdk.AssistantMessage)
    result(messages)


@scenario
async def origin_comes_back(p):
    first, second = await p.turns(user("Hello.", origin={"kind": "human"}), user("Hello again."), max_turns=1)
    assert result(first).origin == {"kind": "human"} and result(second).origin is None, (result(first), result(second))


# Tools in the host's process


def server(called, *names):
    def make(name):
        async def run(args):
            called.append((name, args))
            return {"content": [{"type": "text", "text": f"{name} says {args['text']}"}]}

        return sdk.tool(name, f"Says it as {name}.", {"text": str})(run)

    return sdk.create_sdk_mcp_server(name="voices", version="1.0.0", tools=[make(n) for n in names])


@scenario
async def own_tool_runs(p):
    called = []
    (messages,) = await p.turns("Speak.", mcp_servers={"voices": server(called, "loud")}, allowed_tools=["mcp__voices__loud"])
    assert called == [("loud", {"text": "a"})], called
    result(messages)


@scenario
async def own_tool_disallowed(p):
    called = []
    await p.turns(
        "Speak.", model="claude-opus-4-5", mcp_servers={"voices": server(called, "loud", "soft")},
        disallowed_tools=["mcp__voices__loud"], allowed_tools=["mcp__voices__soft"],
    )
    assert [name for name, _ in called] == ["soft"], called


@scenario
async def own_tools_in_a_row(p):
    called = []
    await p.turns("Speak.", mcp_servers={"voices": server(called, "loud", "soft")}, allowed_tools=["mcp__voices__loud", "mcp__voices__soft"])
    assert sorted(name for name, _ in called) == ["loud", "soft"], called


@scenario
async def own_tool_without_permission(p):
    called = []
    (messages,) = await p.turns("Speak.", mcp_servers={"voices": server(called, "loud")})
    assert not called and [r.is_error for r in tool_results(messages)] == [True], (called, messages)


# Sessions


@scenario
async def store_resume_reads_user_settings(p):
    store, config = sdk.InMemorySessionStore(), os.path.join(p.dir, "config")
    project = os.path.join(p.dir, "project")
    os.makedirs(config), os.makedirs(project)
    given = dict(cwd=project, session_store=store, env={"CLAUDE_CONFIG_DIR": config}, max_turns=1)
    first = await p.query("One.", **given)
    assert init(first)["output_style"] == "default", init(first)["output_style"]
    p.write("config/settings.json", '{"outputStyle": "Explanatory"}')
    shutil.rmtree(os.path.join(config, "projects"), ignore_errors=True)
    second = await p.query("Two.", resume=result(first).session_id, **given)
    assert result(second).session_id == result(first).session_id
    assert init(second)["output_style"] == "Explanatory", init(second)["output_style"]


async def two_turns(p):
    first, second = await p.turns("One.", "Two.", max_turns=1)
    session = result(second).session_id
    chain = sdk.get_session_messages(session, directory=p.dir)
    keep = of(first, sdk.AssistantMessage)[-1].uuid
    uuids = [m.uuid for m in chain]
    follows = chain[uuids.index(keep) + 1]
    assert follows.type == "user" and follows.message["content"] == "Two.", follows
    return session, keep, follows.uuid


def prompts(p, session):
    said = [m.message["content"] for m in sdk.get_session_messages(session, directory=p.dir) if m.type == "user"]
    return [s for s in said if isinstance(s, str)]


@scenario
async def truncating_resume(p):
    session, keep, dropped = await two_turns(p)
    messages = await p.query("Three.", max_turns=1, resume=session, fork_session=True, resume_session_at=keep, resume_drops_turn=dropped)
    assert result(messages).session_id != session
    assert prompts(p, result(messages).session_id) == ["One.", "Three."], prompts(p, result(messages).session_id)
    assert prompts(p, session) == ["One.", "Two."], prompts(p, session)


@scenario
async def truncating_resume_refused(p):
    session, keep, _ = await two_turns(p)
    try:
        await p.query("Three.", max_turns=1, resume=session, fork_session=True, resume_session_at=keep, resume_drops_turn=str(uuid.uuid4()))
    except sdk.ProcessError as e:
        assert "Resume rejected by --resume-drops-turn:" in str(e), e
    else:
        raise AssertionError("it was resumed")
    assert prompts(p, session) == ["One.", "Two."], prompts(p, session)


@scenario
async def silent_stderr(p):
    lines = []
    result(await p.query("Hello.", stderr=lines.append))
    assert lines == [], lines


# Structured output


async def structured(p, schema, **more):
    messages = await p.query("Answer.", output_format={"type": "json_schema", "schema": schema}, permission_mode="acceptEdits", **more)
    assert not result(messages).is_error
    return result(messages).structured_output


def schema(required, **properties):
    return {"type": "object", "properties": properties, "required": required}


NUMBER, BOOL = {"type": "number"}, {"type": "boolean"}


@scenario
async def structured_simple(p):
    p.write("src/a.py", "")
    got = await structured(p, schema(["files", "tests"], files=NUMBER, tests=BOOL, test_files=NUMBER))
    assert got == {"files": 1, "tests": False}, got


@scenario
async def structured_nested(p):
    inner = schema(["words", "letters"], words=NUMBER, letters=NUMBER)
    got = await structured(p, schema(["counts", "list"], counts=inner, list={"type": "array", "items": {"type": "string"}}))
    assert got == {"counts": {"words": 2, "letters": 9}, "list": ["good", "night"]}, got


@scenario
async def structured_enum(p):
    p.write("tests/test_a.py", "import pytest\n")
    kinds = {"type": "string", "enum": ["pytest", "unittest", "none"]}
    got = await structured(p, schema(["found", "kind"], found=BOOL, kind=kinds, count=NUMBER))
    assert got == {"found": True, "kind": "pytest"}, got


@scenario
async def structured_with_tools(p):
    p.write("README.md", "Read me.\n")
    got = await structured(p, schema(["files", "readme"], files=NUMBER, readme=BOOL))
    assert got == {"files": 1, "readme": True}, got


# Permissions


def allow(asked):
    async def can_use_tool(name, tool_input, _context):
        asked.append((name, tool_input))
        return sdk.PermissionResultAllow()

    return can_use_tool


@scenario
async def permission_callback(p):
    asked = []
    await p.turns("Touch it.", can_use_tool=allow(asked))
    assert [name for name, _ in asked] == ["Bash"] and os.path.exists(os.path.join(p.dir, "made.txt")), asked


async def outside(p, prompt):
    asked, file = [], os.path.join(os.path.dirname(p.dir), os.path.basename(p.dir) + ".txt")
    messages = await p.query(prompt, can_use_tool=allow(asked), disallowed_tools=["Bash"], max_turns=3)
    assert not result(messages).is_error and [name for name, _ in asked] == ["Write"] and os.path.exists(file), (asked, messages)


@scenario
async def permission_callback_of_a_stream(p):
    await outside(p, one(user("Write it.", session_id="")))


@scenario
async def permission_callback_of_a_string(p):
    await outside(p, "Write it.")


async def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        job = json.load(f)
    free = asyncio.Semaphore(4)

    async def play(name, place):
        problem = None
        async with free:
            try:
                await SCENARIOS[name](Place(job["cli"], **place))
            except BaseException as e:
                at = traceback.extract_tb(e.__traceback__)[-1]
                problem = f"{type(e).__name__} at line {at.lineno}: {str(e)[:2000]}"
        print(json.dumps({"name": name, "problem": problem}), flush=True)

    unknown = SCENARIOS.keys() ^ job["all"]
    assert not unknown, f"only one side has {unknown}"
    await asyncio.gather(*(play(n, at) for n, at in job["scenarios"].items()))


asyncio.run(main())
