// What the entries of a session amount to: a list of items, in order. No elements here.

const text = content => typeof content === 'string' ? content : (content ?? []).map(b => b.type === 'text' ? b.text : b.type === 'image' ? '[picture]' : b.type === 'document' ? '[document]' : '').filter(Boolean).join('\n');

export class Model {
  constructor() {
    this.last = 0; // the number of the last entry
    this.items = [];
    this.changed = new Set(); // keys of items to draw again
    this.prompts = new Map(); // by uuid
    this.tools = new Map(); // by the id of the call
    this.blocks = new Map(); // how many blocks of a message are durable, by its id
    this.live = new Map(); // pieces that are being written, by message and index
    this.asks = new Map(); // those that are open, by id
    this.asked = new Map(); // all, by id
    this.state = {phase: 'idle'};
    this.todos = [];
    this.info = {model: '', mode: '', commands: [], tools: []};
    this.turn = 1;
    this.cost = 0;
  }

  add(e) {
    if (e.n) {
      if (e.n <= this.last) return; // it is there
      this.last = e.n;
    }
    const kind = 'on_' + e.kind;
    try {
      if (this[kind]) this[kind](e.data ?? {}, e);
    } catch (err) { // another form than agents write
      console.warn(err);
      this.note(e, 'An entry cannot be shown');
    }
  }

  // forget drops pieces that are not complete: their messages follow as a whole.
  forget(parent) {
    for (const [key, item] of this.live) {
      if (parent !== undefined && item.parent !== parent) continue;
      this.live.delete(key);
      const list = this.listOf(item.parent);
      const i = list.indexOf(item);
      if (i >= 0) list.splice(i, 1);
      this.touch(item);
    }
  }

  listOf(parent) { return (parent && this.tools.get(parent)?.children) || this.items; }

  touch(item) {
    const seen = new Set(); // an agent may name a call as its own parent
    while (item.parent && this.tools.get(item.parent) && !seen.has(item)) {
      seen.add(item);
      item = this.tools.get(item.parent);
    }
    this.changed.add(item.key);
  }

  push(item) {
    item.turn = this.turn;
    item.open = new Set();
    this.listOf(item.parent).push(item);
    this.touch(item);
    return item;
  }

  note(e, what) { this.push({key: 'n' + e.n, kind: 'note', text: what, time: e.time, n: e.n}); }

  on_state(s) { this.state = s; }

  on_prompt(p, e) {
    const item = this.push({key: 'p' + p.uuid, kind: 'prompt', uuid: p.uuid, by: p.by?.name, text: text(p.message?.message?.content), time: e.time, n: e.n, waits: true, schedule: p.schedule});
    this.prompts.set(p.uuid, item);
  }

  on_dropped(d) {
    const item = this.prompts.get(d.uuid);
    if (item) { item.waits = false; item.dropped = true; this.touch(item); }
  }

  on_ask(a, e) {
    a.time = e.time;
    this.asks.set(a.id, a);
    this.asked.set(a.id, a);
    const tool = this.tools.get(a.tool_use_id);
    if (tool) { tool.ask = a; this.touch(tool); }
  }

  on_answer(a) {
    const ask = this.asked.get(a.ask);
    this.asks.delete(a.ask);
    if (!ask) return;
    ask.answer = a;
    const tool = this.tools.get(ask.tool_use_id);
    if (tool) this.touch(tool);
  }

  on_control(c, e) {
    const r = c.request ?? {}, by = c.by?.name ?? 'someone';
    switch (r.subtype) {
    case 'interrupt': this.note(e, `Interrupted by ${by}`); break;
    case 'set_model': this.info.model = r.model ?? ''; this.note(e, `Model ${r.model || 'default'}, set by ${by}`); break;
    case 'set_permission_mode': this.info.mode = r.mode; this.note(e, `Mode ${r.mode}, set by ${by}`); break;
    }
  }

  on_ended(x, e) { this.forget(); this.note(e, x.reason); }
  on_rewound(x, e) { this.note(e, `${x.by?.name ?? 'Someone'} went back: the conversation continues behind an earlier message`); }
  on_cleared(x, e) { this.note(e, 'The conversation begins anew'); }
  on_forked(x, e) { this.note(e, 'A copy of another session'); }
  on_trimmed(x, e) { this.note(e, 'Older entries were removed'); }

  on_frame(f, e) {
    switch (f.type) {
    case 'system': this.system(f, e); break;
    case 'user': this.user(f, e); break;
    case 'assistant': this.assistant(f, e); break;
    case 'result': this.result(f, e); break;
    }
  }

  system(f, e) {
    if (f.subtype === 'init') {
      Object.assign(this.info, {model: f.model, mode: f.permissionMode, commands: f.slash_commands ?? [], tools: f.tools ?? []});
    } else if (f.subtype === 'compact_boundary') {
      this.note(e, 'The conversation was summarised to make room');
    } else if (f.subtype === 'status' && f.permissionMode) {
      this.info.mode = f.permissionMode;
    }
  }

  user(f, e) {
    const content = f.message?.content, parent = f.parent_tool_use_id;
    if (Array.isArray(content)) {
      for (const b of content) if (b.type === 'tool_result') this.toolResult(b, f, e);
    }
    const said = text(content);
    const prompt = this.prompts.get(f.uuid);
    if (prompt) {
      prompt.waits = false;
      this.touch(prompt);
      const i = this.items.indexOf(prompt);
      if (i >= 0 && i !== this.items.length - 1 && this.items.slice(i + 1).some(x => x.kind !== 'note' && !x.live && !x.waits)) {
        this.items.splice(i, 1); // its turn begins here
        this.items.push(prompt);
      }
      prompt.turn = this.turn;
    } else if (said && !f.isSynthetic && !f.isMeta) {
      this.push({key: 'n' + e.n, kind: 'prompt', uuid: f.uuid, text: said, time: e.time, n: e.n, parent});
    }
  }

  toolResult(b, f, e) {
    const tool = this.tools.get(b.tool_use_id);
    if (!tool) return;
    tool.done = true;
    tool.failed = b.is_error === true;
    tool.output = text(b.content);
    tool.ended = e.time;
    const r = f.tool_use_result;
    if (r && typeof r === 'object' && r.filePath && Array.isArray(r.structuredPatch)) tool.patch = patchOf(r);
    this.touch(tool);
  }

  assistant(f, e) {
    const id = f.message?.id ?? f.uuid, parent = f.parent_tool_use_id || undefined;
    for (const b of f.message?.content ?? []) {
      const index = this.blocks.get(id) ?? 0;
      this.blocks.set(id, index + 1);
      const key = id + ':' + index;
      let item = this.live.get(key);
      this.live.delete(key);
      if (item && item.kind !== kindOf(b)) {
        const list = this.listOf(item.parent);
        list.splice(list.indexOf(item), 1);
        item = undefined;
      }
      item ??= kindOf(b) && this.push({key: `n${e.n}.${index}`, kind: kindOf(b), parent});
      if (!item) continue;
      Object.assign(item, {live: false, time: e.time, n: e.n, uuid: f.uuid, error: f.error});
      switch (b.type) {
      case 'text': item.text = b.text; break;
      case 'thinking': item.text = b.thinking; break;
      default: this.toolUse(item, b, e);
      }
      this.touch(item);
    }
  }

  toolUse(item, b, e) {
    Object.assign(item, {id: b.id, name: b.name, input: b.input, started: e.time, children: item.children ?? []});
    this.tools.set(b.id, item);
    for (const a of this.asked.values()) if (a.tool_use_id === b.id) item.ask = a;
    if (b.name === 'TodoWrite' && Array.isArray(b.input?.todos) && !item.parent) this.todos = b.input.todos;
  }

  result(f, e) {
    this.forget();
    const total = f.total_cost_usd ?? this.cost;
    const cost = Math.max(0, total < this.cost ? total : total - this.cost); // it adds up
    this.push({key: 'n' + e.n, kind: 'result', n: e.n, time: e.time, ms: f.duration_ms, cost, failed: f.is_error, text: f.is_error ? (f.errors?.join('\n') || f.result || f.subtype) : '', uuid: this.lastUUID(), usage: f.usage});
    this.cost = total;
    this.turn++;
  }

  lastUUID() {
    for (let i = this.items.length - 1; i >= 0; i--) if (this.items[i].uuid && this.items[i].kind !== 'prompt') return this.items[i].uuid;
    return undefined;
  }

  on_live(f) {
    if (f.type === 'command_lifecycle' && f.state === 'started') {
      const prompt = this.prompts.get(f.command_uuid);
      if (prompt?.waits) { prompt.waits = false; this.touch(prompt); }
    }
    const tool = f.type === 'tool_progress' && this.tools.get(f.tool_use_id);
    if (tool && !tool.done) {
      tool.seconds = f.elapsed_time_seconds;
      if (f.output) tool.tail = f.output.trimEnd().split('\n').slice(-5).join('\n');
      this.touch(tool);
    }
    if (f.type !== 'stream_event') return;
    const ev = f.event ?? {}, id = f.api_message_id ?? ev.message?.id ?? f.uuid, parent = f.parent_tool_use_id || undefined;
    if (ev.type === 'message_start') { this.forget(parent ?? undefined); return; }
    if (ev.type !== 'content_block_start' && ev.type !== 'content_block_delta') return;
    if (ev.index < (this.blocks.get(id) ?? 0)) return; // it is there as a whole
    const key = id + ':' + ev.index;
    let item = this.live.get(key);
    if (!item) {
      const kind = kindOf(ev.content_block) ?? {text_delta: 'text', thinking_delta: 'thinking'}[ev.delta?.type];
      if (!kind) return;
      item = this.push({key: 'l' + key, kind, live: true, parent, text: '', name: ev.content_block?.name, children: []});
      this.live.set(key, item);
    }
    if (ev.delta?.type === 'text_delta') item.text += ev.delta.text;
    if (ev.delta?.type === 'thinking_delta') item.text += ev.delta.thinking;
    if (ev.delta?.type === 'input_json_delta') item.text += ev.delta.partial_json;
    this.touch(item);
  }
}

function kindOf(block) {
  switch (block?.type) {
  case 'text': return 'text';
  case 'thinking': return 'thinking';
  case 'tool_use': case 'server_tool_use': case 'mcp_tool_use': return 'tool';
  }
  return undefined;
}

function patchOf(r) {
  const lines = [];
  for (const h of r.structuredPatch) {
    let before = h.oldStart, after = h.newStart;
    lines.push({kind: 'hunk', text: `@@ -${h.oldStart},${h.oldLines} +${h.newStart},${h.newLines} @@`});
    for (const l of h.lines ?? []) {
      const c = l[0], rest = l.slice(1);
      if (c === '+') lines.push({kind: 'add', new: after++, text: rest});
      else if (c === '-') lines.push({kind: 'del', old: before++, text: rest});
      else if (c === '\\') lines.push({kind: 'file', text: l});
      else lines.push({kind: 'same', old: before++, new: after++, text: rest});
    }
  }
  if (!lines.length && r.type === 'create' && typeof r.content === 'string') {
    r.content.replace(/\n$/, '').split('\n').forEach((l, i) => lines.push({kind: 'add', new: i + 1, text: l}));
  }
  return {path: r.filePath, lines};
}

// changes returns all changes of files, of subagents too, in order.
export function changes(items, out = []) {
  for (const item of items) {
    if (item.patch?.lines.length) out.push({item, turn: item.turn, ...item.patch});
    if (item.children) changes(item.children, out);
  }
  return out;
}
