// Drives a CLI with the official TypeScript SDK as a scenario says, and prints
// what the SDK's user sees, one JSON object a line. The scenario is the first
// argument (JSON, or a file) or standard input; interop/README.md has the format.
import {appendFileSync, existsSync, readFileSync, statSync} from 'node:fs';
import {createRequire} from 'node:module';

const require = createRequire(`${process.env.PARLEY_PEERS}/driver.js`);
const {query, tool, createSdkMcpServer} = await import(require.resolve('@anthropic-ai/claude-agent-sdk'));
const {z} = await import(require.resolve('zod'));

const given = process.argv[2] ?? readFileSync(0, 'utf8');
const scenario = JSON.parse(existsSync(given) ? readFileSync(given, 'utf8') : given);

const start = performance.now();
function print(event, fields) {
  console.log(JSON.stringify({event, ms: Math.round(performance.now() - start), ...fields}));
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
// Returns when a file has so many bytes.
const size = async (file, bytes) => {
  while ((statSync(file, {throwIfNoEntry: false})?.size ?? 0) < bytes) await sleep(10);
};
const words = error => error?.message ?? String(error);

// Does what a rule says instead of or before an answer: wait, fail, or hang
// until the SDK cancels the callback.
async function behave(rule, event, signal) {
  if (rule.mark) {
    appendFileSync(rule.mark, 'x');
    await size(rule.mark, rule.await ?? 0);
  }
  if (rule.hang) {
    await new Promise(resolve => signal?.addEventListener('abort', resolve, {once: true}));
    print(event, {cancelled: true});
    throw new Error('cancelled');
  }
  if (rule.throw) throw new Error(rule.throw);
}

// Takes the first rule for a tool that is not used up.
function take(rules, name) {
  const rule = rules.find(r => (!r.tool || r.tool === name) && r.times !== 0);
  if (rule?.times) rule.times--;
  return rule;
}

const options = {...scenario.options};
if (scenario.cli) options.pathToClaudeCodeExecutable = scenario.cli;
if (scenario.env) options.env = {...process.env, ...scenario.env};
if (scenario.stderr) options.stderr = data => print('stderr', {data});

if (scenario.canUseTool) {
  options.canUseTool = async (name, input, {signal, ...context}) => {
    print('canUseTool', {tool: name, input, context});
    const rule = take(scenario.canUseTool, name) ?? {};
    await behave(rule, 'canUseTool', signal);
    return rule.answer ?? {behavior: 'allow', updatedInput: input};
  };
}

if (scenario.hooks) {
  options.hooks = Object.fromEntries(Object.entries(scenario.hooks).map(([name, rules]) => [name, rules.map(rule => ({
    ...(rule.matcher !== undefined && {matcher: rule.matcher}),
    ...(rule.timeout !== undefined && {timeout: rule.timeout}),
    hooks: [async (input, toolUseID, {signal}) => {
      print('hook', {name, input, toolUseID});
      if (rule.times === 0) return {};
      if (rule.times) rule.times--;
      await behave(rule, 'hook', signal);
      return rule.output ?? {};
    }],
  }))]));
}

if (scenario.tools) {
  const types = {string: z.string(), number: z.number(), integer: z.number().int(), boolean: z.boolean()};
  options.mcpServers = {...options.mcpServers};
  for (const [server, tools] of Object.entries(scenario.tools)) {
    options.mcpServers[server] = createSdkMcpServer({name: server, version: '1.0.0', tools: tools.map(rule => tool(
      rule.name, rule.description ?? rule.name,
      Object.fromEntries(Object.entries(rule.input ?? {}).map(([key, type]) => [key, types[type]])),
      async args => {
        print('tool', {server, name: rule.name, args});
        await behave(rule, 'tool');
        return rule.result ?? {content: [{type: 'text', text: 'ok'}]};
      },
      rule.annotations && {annotations: rule.annotations},
    ))});
  }
}

if (scenario.elicitation) {
  options.onElicitation = async (request, {signal}) => {
    print('elicitation', {request});
    await behave(scenario.elicitation, 'elicitation', signal);
    return scenario.elicitation.answer ?? {action: 'decline'};
  };
}

// Every message is kept, so that a step can wait for one that came before it
// was asked for; each message satisfies one wait.
const inbox = [];
let arrived = () => {};
let ended = false;

async function until(pattern) {
  for (;;) {
    while (inbox.length) if (matches(inbox.shift(), pattern)) return;
    if (ended) throw new Error(`the stream ended before ${JSON.stringify(pattern)}`);
    await new Promise(resolve => { arrived = resolve; });
  }
}

// A pattern is a part of the message: every member it names is equal.
function matches(value, pattern) {
  if (pattern === null || typeof pattern !== 'object') return value === pattern;
  return value !== null && typeof value === 'object' &&
    Object.entries(pattern).every(([key, part]) => matches(value[key], part));
}

// The steps of a conversation are the SDK's input: what they send it reads, and
// when they are over the input ends.
async function* steps() {
  for (const step of scenario.steps) {
    if ('send' in step) {
      yield {type: 'user', session_id: '', parent_tool_use_id: null, message: {role: 'user', content: step.send}, ...step.fields};
    } else if ('until' in step) {
      try { await until(step.until); } catch (error) { print('error', {step, message: words(error)}); return; }
    } else if ('call' in step) {
      const call = Promise.resolve().then(() => session[step.call](...(step.args ?? []))).then(
        result => print('call', {method: step.call, result: result ?? null}),
        error => print('call', {method: step.call, error: words(error)}));
      if (!step.background) await call;
    } else if ('mark' in step) {
      appendFileSync(step.mark, 'x');
    } else if ('await' in step) {
      await size(step.await, 1);
    } else {
      throw new Error(`unknown step ${JSON.stringify(step)}`);
    }
  }
}

const session = query({prompt: scenario.steps ? steps() : scenario.prompt, options});
let failed = 0;
try {
  for await (const message of session) {
    print('message', {message});
    inbox.push(message);
    arrived();
  }
} catch (error) {
  failed = 1;
  print('error', {name: error?.name, message: words(error)});
}
ended = true;
arrived();
print('end', {failed: failed === 1});
