// Drives a session of `parley serve` with the browser export of the official TypeScript
// SDK, in node (browser.mjs TRANSPORT URL SESSION TOKEN) and in a page. It brings a hook, a
// tool of its own and an answer to questions; suspends its stream in the middle (server-sent
// events only); then a second query that resumes behind the first sees nothing again.
// It returns what it saw, and prints it in node.
export async function drive(sdk, z, transport, url, id, token) {
  const seen = {types: [], asked: [], hooks: [], tool: [], results: [], deltas: 0, again: []};

  let push;
  let wake;
  const queue = [];
  async function* prompts() {
    for (;;) {
      while (queue.length) yield queue.shift();
      await new Promise(r => { wake = r; });
      if (push === null) return;
    }
  }
  const say = text => { queue.push({type: 'user', message: {role: 'user', content: text}, parent_tool_use_id: null, session_id: id}); wake?.(); };

  const connection = from => transport === 'websocket'
    ? {websocket: {url: `${url.replace('http', 'ws')}/v1/sessions/${id}/ws`, authMessage: {type: 'auth', credential: {type: 'oauth', token}}}}
    : {sse: {
      streamUrl: `${url}/v1/code/sessions/${id}/events/stream`,
      sendUrl: `${url}/v1/code/sessions/${id}/events`,
      sessionId: id,
      headers: {Authorization: `Bearer ${token}`},
      fromSequenceNum: from,
    }};

  const q = sdk.query({
    prompt: prompts(),
    canUseTool: async (name, input) => {
      seen.asked.push(name);
      return name === 'Bash' ? {behavior: 'deny', message: 'Not now.'} : {behavior: 'allow', updatedInput: input};
    },
    hooks: {PreToolUse: [{hooks: [async input => { seen.hooks.push(input.tool_name); return {}; }]}]},
    mcpServers: {mine: sdk.createSdkMcpServer({name: 'mine', tools: [sdk.tool('double', 'Doubles a number.', {n: z.number()}, async ({n}) => {
      seen.tool.push(n);
      return {content: [{type: 'text', text: String(2 * n)}]};
    })]})},
    ...connection(),
  });

  say('one');
  let turns = 0;
  for await (const m of q) {
    if (m.type === 'stream_event') { seen.deltas++; continue; }
    if (m.type !== 'system') seen.types.push(m.type);
    if (m.type !== 'result') continue;
    seen.results.push(m.result);
    turns++;
    if (turns === 1) {
      seen.model = (await q.supportedModels()).length > 0;
      if (transport === 'sse') {
        seen.suspended = sdk.suspendSseStream(q);
        sdk.resumeSseStream(q);
      }
      say('two');
    } else break;
  }
  if (transport === 'sse') {
    seen.drops = sdk.getSseDropCounts(q);
    const last = sdk.getSseLastSequenceNum(q);
    const abortController = new AbortController();
    push = undefined;
    const later = sdk.query({prompt: (async function* () { yield {type: 'user', message: {role: 'user', content: 'three'}, parent_tool_use_id: null, session_id: id}; await new Promise(() => {}); })(), abortController, ...connection(last)});
    for await (const m of later) {
      if (m.type !== 'stream_event' && m.type !== 'system') seen.again.push(m.type);
      if (m.type === 'result') { seen.results.push(m.result); break; }
    }
  }
  return seen;
}

if (globalThis.process?.argv) {
  const {createRequire} = await import('node:module');
  const require = createRequire(`${process.env.PARLEY_PEERS}/driver.js`);
  const sdk = await import(require.resolve('@anthropic-ai/claude-agent-sdk/browser'));
  const {z} = await import(require.resolve('zod'));
  console.log(JSON.stringify(await drive(sdk, z, ...process.argv.slice(2))));
  process.exit(0);
}
