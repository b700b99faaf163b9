// Prints what the session functions of the official TypeScript SDK return for a session of a configuration
// directory (CLAUDE_CONFIG_DIR): sessionfunctions.mjs ID DIRECTORY. It renames, tags, forks and deletes, too.
import {createRequire} from 'node:module';

const require = createRequire(`${process.env.PARLEY_PEERS}/driver.js`);
const sdk = await import(require.resolve('@anthropic-ai/claude-agent-sdk'));
const [id, dir] = process.argv.slice(2);
const out = {};
// What varies from run to run becomes its type; ids are numbered by their first use.
const ids = new Map();
const plain = (v, name) => {
  if (typeof v === 'string') {
    return v.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, u => { if (!ids.has(u)) ids.set(u, `id-${ids.size}`); return ids.get(u); })
      .replaceAll(dir, '<dir>').replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, '<time>').replace(/^a[0-9a-f]{16}$/, '<agent>');
  }
  if (typeof v === 'number' && /lastModified|fileSize|createdAt/.test(name)) return 'number';
  if (Array.isArray(v)) return v.map(e => plain(e, name));
  if (v && typeof v === 'object') return Object.fromEntries(Object.entries(v).sort().map(([k, e]) => [k, plain(e, k)]));
  return v;
};
const put = async (name, f) => {
  try { out[name] = plain(await f() ?? null, name); } catch (e) { out[name] = {error: plain(String(e.message ?? e), name)}; }
};
const messages = async (...args) => (await sdk.getSessionMessages(...args)).map(m => ({...m, message: {role: m.message?.role, content: shape(m.message?.content)}}));
// Texts for the model are each CLI's own: only the kinds of blocks and the texts of the conversation count.
const shape = c => typeof c === 'string' ? (c.startsWith('<') ? '<text>' : c) : (c ?? []).map(b => ({type: b.type, ...(b.name && {name: b.name}), ...(b.input && {input: b.input})}));
await put('list', () => sdk.listSessions({dir}));
await put('list all', () => sdk.listSessions({limit: 1, offset: 0}));
await put('info', () => sdk.getSessionInfo(id, {dir}));
await put('messages', () => messages(id, {dir}));
await put('page', () => messages(id, {dir, limit: 2, offset: 1}));
await put('subagents', () => sdk.listSubagents(id, {dir}));
for (const agent of await sdk.listSubagents(id, {dir})) {
  await put('subagent', async () => (await sdk.getSubagentMessages(id, agent, {dir})).map(m => [m.type, m.parent_tool_use_id, m.parent_agent_id, shape(m.message?.content)]));
}
await put('rename', () => sdk.renameSession(id, ' New title ', {dir}));
await put('tag', () => sdk.tagSession(id, 'blue', {dir}));
await put('renamed', () => sdk.getSessionInfo(id, {dir}));
await put('untag', () => sdk.tagSession(id, null, {dir}));
await put('untagged', () => sdk.getSessionInfo(id, {dir}));
const all = await sdk.getSessionMessages(id, {dir});
let fork;
await put('fork', async () => { fork = (await sdk.forkSession(id, {dir, upToMessageId: all[1].uuid, title: 'A fork'})).sessionId; });
await put('fork info', () => sdk.getSessionInfo(fork, {dir}));
await put('fork messages', () => messages(fork, {dir}));
await put('archive', () => sdk.archiveSession(id, {dir}));
await put('archived', () => sdk.getSessionInfo(id, {dir}));
await put('delete', () => sdk.deleteSession(id, {dir}));
await put('deleted', () => sdk.getSessionInfo(id, {dir}));
await put('left', async () => (await sdk.listSessions({dir})).length);
await put('missing', () => sdk.renameSession(id, 'x', {dir}));
console.log(JSON.stringify(out, null, 1));
process.exit(0);
