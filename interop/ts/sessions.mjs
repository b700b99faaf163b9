// Prints what the official TypeScript SDK reads of a session of a configuration directory
// (CLAUDE_CONFIG_DIR), then renames it and forks it: sessions.mjs ID TITLE.
import {createRequire} from 'node:module';

const require = createRequire(`${process.env.PARLEY_PEERS}/driver.js`);
const sdk = await import(require.resolve('@anthropic-ai/claude-agent-sdk'));
const [id, title] = process.argv.slice(2);
const listed = (await sdk.listSessions()).map(s => s.sessionId);
const brief = all => all.map(m => [m.type, m.uuid]);
const messages = brief(await sdk.getSessionMessages(id));
const agents = {};
for (const agent of await sdk.listSubagents(id)) {
  agents[agent] = brief(await sdk.getSubagentMessages(id, agent));
}
await sdk.renameSession(id, title);
const fork = (await sdk.forkSession(id)).sessionId;
console.log(JSON.stringify({listed, messages, agents, fork}));
process.exit(0);
