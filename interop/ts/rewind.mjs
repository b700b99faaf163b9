// Changes files through a CLI with the official TypeScript SDK and puts them back with
// rewindFiles: rewind.mjs CLI DIR. Prints what the two calls returned.
import {createRequire} from 'node:module';

const require = createRequire(`${process.env.PARLEY_PEERS}/driver.js`);
const {query} = await import(require.resolve('@anthropic-ai/claude-agent-sdk'));
const [cli, cwd] = process.argv.slice(2);
const uuid = 'a1111111-1111-4111-8111-111111111111';
let done;
const finished = new Promise(resolve => { done = resolve; });

async function* prompts() {
  yield {type: 'user', uuid, session_id: '', parent_tool_use_id: null, message: {role: 'user', content: 'Change the files.'}};
  await finished;
}

const q = query({
  prompt: prompts(),
  options: {cwd, pathToClaudeCodeExecutable: cli, permissionMode: 'acceptEdits', enableFileCheckpointing: true, settingSources: [], model: 'claude-sonnet-4-5', env: process.env},
});
for await (const m of q) {
  if (m.type !== 'result') continue;
  try {
    const dry = await q.rewindFiles(uuid, {dryRun: true});
    const real = await q.rewindFiles(uuid);
    console.log(JSON.stringify({result: m.subtype, dry, real}));
  } catch (e) {
    console.log(JSON.stringify({result: m.subtype, error: String(e.message ?? e)}));
  }
  done();
  break;
}
process.exit(0);
