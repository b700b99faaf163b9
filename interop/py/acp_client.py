"""acp_client.py AGENT...: the Python SDK of the Agent Client Protocol drives an agent.

A session, a prompt with a permission request, the list and the history. It prints what it
saw as JSON.
"""

import asyncio
import json
import os
import sys

import acp
from acp import schema

seen = {"kinds": {}, "text": "", "permissions": 0, "replayed": ""}
loading = False


class Client(acp.Client):
    async def request_permission(self, options, session_id, tool_call, **kwargs):
        seen["permissions"] += 1
        chosen = next(o for o in options if o.kind == "allow_once")
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    async def session_update(self, session_id, update, **kwargs):
        kind = update.session_update
        seen["kinds"][kind] = seen["kinds"].get(kind, 0) + 1
        if kind.endswith("message_chunk"):
            seen["replayed" if loading else "text"] += update.content.text


async def main():
    global loading
    command, *args = sys.argv[1:]
    async with acp.spawn_agent_process(Client(), command, *args, env=dict(os.environ)) as (conn, process):
        init = await conn.initialize(protocol_version=1)
        seen["version"] = init.protocol_version
        made = await conn.new_session(cwd=os.getcwd(), mcp_servers=[])
        answer = await conn.prompt(session_id=made.session_id, prompt=[acp.text_block("Write it.")])
        seen["first"] = answer.stop_reason
        listed = await conn.list_sessions()
        seen["listed"] = any(s.session_id == made.session_id for s in listed.sessions)
        loading = True
        await conn.load_session(cwd=os.getcwd(), session_id=made.session_id, mcp_servers=[])
    print(json.dumps(seen))


asyncio.run(main())
