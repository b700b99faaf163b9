"""Prints what the session functions of the official Python SDK return for a session of a configuration directory.

The arguments are the id of the session and the directory of its project; CLAUDE_CONFIG_DIR names the configuration. It
renames, tags and forks the session, imports it into a store, and deletes only the fork.
"""

import asyncio
import dataclasses
import json
import re
import sys

import claude_agent_sdk as sdk

session, directory = sys.argv[1:]
out = {}
ids = {}


def plain(value, name=""):
    """A value whose parts that vary from run to run are replaced; ids are numbered by their first use."""
    if dataclasses.is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, str):
        value = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", lambda m: ids.setdefault(m[0], f"id-{len(ids)}"), value)
        value = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", value.replace(directory, "<dir>"))
        return re.sub(r"^a[0-9a-f]{16}$", "<agent>", value)
    if isinstance(value, int) and re.search("last_modified|file_size|created_at|mtime", name):
        return "number"
    if isinstance(value, (list, tuple)):
        return [plain(v, name) for v in value]
    if isinstance(value, dict):
        return {k: plain(v, k) for k, v in sorted(value.items())}
    return value


def shape(content):
    """The kinds of blocks, and the texts of the conversation: texts for the model are each CLI's own."""
    if isinstance(content, str):
        return "<text>" if content.startswith("<") else content
    return [{k: v for k, v in b.items() if k in ("type", "name", "input")} for b in content or []]


def messages(found):
    return [
        {**vars(m), "message": {"role": m.message.get("role"), "content": shape(m.message.get("content"))}} for m in found
    ]


def put(name, function):
    try:
        out[name] = plain(function(), name)
    except Exception as error:  # the error is the result
        out[name] = {"error": plain(str(error))}


put("list", lambda: sdk.list_sessions(directory))
put("list all", lambda: sdk.list_sessions(limit=1))
put("info", lambda: sdk.get_session_info(session, directory))
put("messages", lambda: messages(sdk.get_session_messages(session, directory)))
put("page", lambda: messages(sdk.get_session_messages(session, directory, limit=2, offset=1)))
put("subagents", lambda: sdk.list_subagents(session, directory))
for agent in sdk.list_subagents(session, directory):
    put("subagent", lambda: [[m.type, shape(m.message.get("content"))] for m in sdk.get_subagent_messages(session, agent, directory)])
put("rename", lambda: sdk.rename_session(session, " Python title ", directory))
put("tag", lambda: sdk.tag_session(session, "green", directory))
put("renamed", lambda: sdk.get_session_info(session, directory))
put("untag", lambda: sdk.tag_session(session, None, directory))
put("untagged", lambda: sdk.get_session_info(session, directory))
second = sdk.get_session_messages(session, directory)[1].uuid
fork = sdk.fork_session(session, directory, up_to_message_id=second, title="A fork").session_id
put("fork info", lambda: sdk.get_session_info(fork, directory))
put("fork messages", lambda: messages(sdk.get_session_messages(fork, directory)))
put("delete", lambda: sdk.delete_session(fork, directory))
put("deleted", lambda: sdk.get_session_info(fork, directory))
put("left", lambda: len(sdk.list_sessions(directory)))
put("missing", lambda: sdk.rename_session(fork, "x", directory))


async def from_store():
    store = sdk.InMemorySessionStore()
    await sdk.import_session_to_store(session, store, directory=directory)
    return {
        "info": await sdk.get_session_info_from_store(store, session, directory),
        "messages": messages(await sdk.get_session_messages_from_store(store, session, directory)),
        "list": [s.session_id for s in await sdk.list_sessions_from_store(store, directory)],
    }


put("store", lambda: asyncio.run(from_store()))
print(json.dumps(out, indent=1))
