// Holds a conversation through a CLI with the official TypeScript SDK and a session store
// of its own, then resumes it from the store with another configuration directory:
// store.mjs CLI CWD DIR1 DIR2. Prints the results and what the store holds.
import {createRequire} from 'node:module';

const require = createRequire(`${process.env.PARLEY_PEERS}/driver.js`);
const {query, InMemorySessionStore, getSessionMessages} = await import(require.resolve('@anthropic-ai/claude-agent-sdk'));
const [cli, cwd, ...dirs] = process.argv.slice(2);
const sessionStore = new InMemorySessionStore();
const results = [];
const errors = [];
let id;

for (const [i, dir] of dirs.entries()) {
  const options = {cwd, pathToClaudeCodeExecutable: cli, settingSources: [], model: 'claude-sonnet-4-5', sessionStore, env: {...process.env, CLAUDE_CONFIG_DIR: dir}};
  if (id) options.resume = id;
  for await (const m of query({prompt: `prompt ${i}`, options})) {
    if (m.type === 'system' && m.subtype === 'mirror_error') errors.push(m.error);
    if (m.type !== 'result') continue;
    results.push(m.result);
    id = m.session_id;
  }
}
const said = await getSessionMessages(id, {dir: cwd, sessionStore});
console.log(JSON.stringify({results, errors, types: said.map(m => m.type)}));
process.exit(0);
