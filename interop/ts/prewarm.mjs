// Starts agents with prewarm() of the official TypeScript SDK before their directory is
// known, claims them, and prints what its user sees as one JSON object.
import {createRequire} from 'node:module';
import {realpathSync} from 'node:fs';

const require = createRequire(`${process.env.PARLEY_PEERS}/driver.js`);
const {prewarm, tool, createSdkMcpServer} = await import(require.resolve('@anthropic-ai/claude-agent-sdk'));
const [cli, given] = process.argv.slice(2);
const dir = realpathSync(given);

// Claims an agent, and returns what comes of it.
async function play(claim, options = {}) {
  const seen = {messages: [], calls: []};
  const spare = await prewarm({options: {
    pathToClaudeCodeExecutable: cli, allowedTools: ['mcp__calc__add'],
    mcpServers: {calc: createSdkMcpServer({name: 'calc', tools: [tool('add', 'Adds.', {}, async () => {
      seen.calls.push('add');
      return {content: [{type: 'text', text: 'three'}]};
    })]})},
    hooks: {UserPromptSubmit: [{hooks: [async input => {
      seen.calls.push(input.cwd === claim.cwd ? 'UserPromptSubmit' : `UserPromptSubmit in ${input.cwd}`);
      return {};
    }]}]},
    ...options,
  }});
  spare.claimed.then(info => { seen.claimed = info; }, error => { seen.refused = error.message.split(':')[0]; });
  try {
    const query = spare.claim({prompt: 'hi', options: claim});
    for await (const m of query) {
      if (m.type === 'result') seen.result = m.subtype;
      if (m.type === 'system' && m.subtype === 'init') {
        seen.init = {here: m.cwd === dir, mode: m.permissionMode, same: m.session_id === seen.claimed?.sessionId, helper: m.agents.includes('helper')};
      }
      if (['assistant', 'user', 'result'].includes(m.type)) seen.messages.push(m.type);
    }
  } catch (error) {
    seen.error = error.message.replace(/^.*?(not_claimed).*$/, '$1');
  }
  await spare.exited;
  if (seen.claimed) seen.claimed = {here: seen.claimed.cwd === dir, settled: seen.claimed.sdkMcpSettled};
  return seen;
}

const [claimed, missing, mode, variable] = await Promise.all([
  play({cwd: dir, permissionMode: 'acceptEdits', appendSystemPrompt: 'Be brief.', title: 'A walk', settings: {permissions: {deny: ['WebFetch']}},
    agents: {helper: {description: 'Helps.', prompt: 'Help.'}}}),
  play({cwd: `${dir}/missing`}),
  play({cwd: dir, permissionMode: 'bypassPermissions'}),
  play({cwd: dir, env: {PATH: '/'}}),
]);
console.log(JSON.stringify({claimed, missing, mode, variable}));
process.exit(0);
