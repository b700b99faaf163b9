// acp.mjs TRANSPORT COMMAND...: the official TypeScript SDK of the Agent Client Protocol
// drives an agent (stdio), or one behind a server that prints a link with a token (http, ws):
// a session, a prompt with a permission request, one that is cancelled, the list and the
// history. The SDK validates every message. It prints what it saw as JSON.
import {spawn} from 'node:child_process';
import {createRequire} from 'node:module';
import {Readable, Writable} from 'node:stream';

const require = createRequire(`${process.env.PARLEY_PEERS}/driver.js`);
const acp = await import(require.resolve('@agentclientprotocol/sdk'));
const [transport, command, ...args] = process.argv.slice(2);
const child = spawn(command, args, {stdio: ['pipe', 'pipe', 'inherit']});
const stream = transport === 'stdio' ? acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)) : await dial();

// dial connects to the server at the address that it prints.
async function dial() {
  let printed = '', link;
  for await (const chunk of child.stdout) {
    printed += chunk;
    if ((link = printed.match(/^(http\S+)\/#t=(\S+)$/m))) break;
  }
  const headers = {Authorization: `Bearer ${link[2]}`};
  if (transport === 'http') {
    const {createHttpStream} = await import(require.resolve('@agentclientprotocol/sdk/experimental/http-client'));
    return createHttpStream(`${link[1]}/acp`, {headers});
  }
  const {createWebSocketStream} = await import(require.resolve('@agentclientprotocol/sdk/experimental/ws-client'));
  class Socket extends WebSocket {
    constructor(url, protocols, options) {
      super(url, {protocols, ...options});
    }
  }
  return createWebSocketStream(`${link[1].replace(/^http/, 'ws')}/acp`, {headers, WebSocket: Socket});
}

const {agent, client} = acp.methods;
const seen = {kinds: {}, text: '', permissions: 0, replayed: ''};
let ctx, session, cancel = false, loading = false;

const app = acp
  .client({name: 'interop'})
  .onRequest(client.session.requestPermission, async ({params}) => {
    seen.permissions++;
    return {outcome: {outcome: 'selected', optionId: params.options.find(o => o.kind === 'allow_once').optionId}};
  })
  .onNotification(client.session.update, async ({params}) => {
    const u = params.update;
    seen.kinds[u.sessionUpdate] = (seen.kinds[u.sessionUpdate] ?? 0) + 1;
    if (u.sessionUpdate.endsWith('message_chunk')) {
      if (loading) seen.replayed += u.content.text;
      else seen.text += u.content.text;
      if (cancel) ctx.notify(agent.session.cancel, {sessionId: session});
    }
  });
await app.connectWith(stream, async c => {
  ctx = c;
  const init = await c.request(agent.initialize, {protocolVersion: 1, clientCapabilities: {}});
  seen.version = init.protocolVersion;
  const made = await c.request(agent.session.new, {cwd: process.cwd(), mcpServers: []});
  session = made.sessionId;
  seen.options = made.configOptions.map(o => o.id);
  const prompt = text => c.request(agent.session.prompt, {sessionId: session, prompt: [{type: 'text', text}]});
  seen.first = (await prompt('Write it.')).stopReason;
  cancel = true;
  seen.second = (await prompt('Go on.')).stopReason;
  cancel = false;
  seen.listed = (await c.request(agent.session.list, {})).sessions.some(s => s.sessionId === session);
  loading = true;
  await c.request(agent.session.load, {sessionId: session, cwd: process.cwd(), mcpServers: []});
});
console.log(JSON.stringify(seen));
child.stdin.end();
if (transport !== 'stdio') child.kill('SIGTERM');
