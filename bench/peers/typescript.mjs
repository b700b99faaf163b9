// Measures the official TypeScript SDK against a fake CLI.
//
//   node typescript.mjs MEASURE [N [SIZE]]
//
//   deltas N          token deltas per second, partial messages on
//   messages N SIZE   assistant messages of SIZE bytes per second
//   permissions N     permission round trips, canUseTool allows each
//   first N           query() to the first message, N queries one after the other
//   memory N          resident memory of this process with N sessions open at once
//
// PARLEY_PEERS is where the SDK is installed, PARLEY_FAKECLI the CLI to start.
// One line of JSON goes to standard output. Importing the SDK is never counted.
import {readFileSync} from 'node:fs';

const sdk = `${process.env.PARLEY_PEERS}/node_modules/@anthropic-ai/claude-agent-sdk`;
const {query} = await import(`${sdk}/sdk.mjs`);
const cli = process.env.PARLEY_FAKECLI;

const [measure, n, size] = [process.argv[2], Number(process.argv[3] ?? 1), Number(process.argv[4] ?? 2400)];
const options = {pathToClaudeCodeExecutable: cli, settingSources: []};

// Runs one prompt to its result and calls each(message, now) for every message.
async function run(prompt, extra, each) {
  let result;
  for await (const message of query({prompt, options: {...options, ...extra}})) {
    each?.(message, performance.now());
    if (message.type === 'result') result = message;
  }
  if (result?.subtype !== 'success') throw new Error(`no success: ${JSON.stringify(result)}`);
}

// Counts what arrives. The rate is taken from the first to the last, which holds
// no start-up; total is the time since query() was called, which hides nothing.
function clock() {
  const start = performance.now();
  let count = 0, first = 0, last = 0;
  return {
    tick(now) { if (count++ === 0) first = now; last = now; },
    rate() {
      const seconds = (last - first) / 1e3;
      return {count, seconds, perSecond: (count - 1) / seconds, total: (last - start) / 1e3};
    },
  };
}

const measures = {
  async deltas() {
    const c = clock();
    let text = 0;
    await run(`deltas ${n}`, {includePartialMessages: true}, (m, now) => {
      if (m.type !== 'stream_event' || m.event.type !== 'content_block_delta') return;
      text += m.event.delta.text.length;
      c.tick(now);
    });
    return {...c.rate(), text};
  },

  async messages() {
    const c = clock();
    let text = 0;
    await run(`messages ${n} ${size}`, {}, (m, now) => {
      if (m.type !== 'assistant') return;
      for (const block of m.message.content) text += block.text?.length ?? 0;
      c.tick(now);
    });
    return {...c.rate(), text};
  },

  async permissions() {
    const at = [];
    await run(`permissions ${n}`, {
      canUseTool: async (_, input) => {
        at.push(performance.now());
        return {behavior: 'allow', updatedInput: input};
      },
    });
    // From one request to the next: our answer, the CLI's turn, the way back.
    const micros = at.slice(1).map((t, i) => (t - at[i]) * 1e3);
    return {count: at.length, microseconds: median(micros), mean: (at.at(-1) - at[0]) * 1e3 / (at.length - 1)};
  },

  async first() {
    const milliseconds = [];
    for (let i = 0; i < n; i++) {
      const start = performance.now();
      let first;
      await run('echo hi', {}, (_, now) => { first ??= now; });
      milliseconds.push(first - start);
    }
    return {milliseconds: median(milliseconds), all: milliseconds};
  },

  async memory() {
    const before = memory();
    let close;
    const closed = new Promise(resolve => { close = resolve; });
    // The input stays open, so each session stays until all have answered.
    async function* input() {
      yield {type: 'user', session_id: '', parent_tool_use_id: null, message: {role: 'user', content: 'echo hi'}};
      await closed;
    }
    let open = n;
    let after;
    await Promise.all(Array.from({length: n}, () => run(input(), {}, m => {
      if (m.type === 'result' && --open === 0) {
        after = memory();
        close();
      }
    })));
    return {sessions: n, rssKiB: after.VmRSS, peakKiB: after.VmHWM, importedKiB: before.VmRSS};
  },
};

// What the kernel says this process holds, in KiB.
function memory() {
  const status = readFileSync('/proc/self/status', 'utf8');
  return Object.fromEntries([...status.matchAll(/^(VmRSS|VmHWM):\s+(\d+) kB$/gm)].map(m => [m[1], Number(m[2])]));
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

if (!measures[measure] || !cli || !(n > 0)) {
  console.error(`usage: node typescript.mjs ${Object.keys(measures).join('|')} [N [SIZE]], with PARLEY_PEERS and PARLEY_FAKECLI set`);
  process.exit(2);
}
const {version} = JSON.parse(readFileSync(`${sdk}/package.json`, 'utf8'));
console.log(JSON.stringify({peer: 'typescript', version, measure, ...await measures[measure]()}));
