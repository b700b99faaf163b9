// A session: its timeline, what waits for an answer, and the prompt.
import {html, nothing, render} from './lit-html.js';
import {attempt, call, may, notice, post, Stream} from './api.js';
import {card, forget} from './approval.js';
import {List} from './list.js';
import {changes, Model} from './model.js';
import {agentAway, diffLines, duration, flat, folded, markdown, money, visible, when} from './text.js';
import {review} from './review.js';

const modes = ['default', 'acceptEdits', 'plan', 'dontAsk', 'bypassPermissions'];
const phases = {idle: 'Ready', running: 'Working', requires_action: 'Needs attention'};

export class Session {
  constructor(root, id) {
    this.root = root;
    this.id = id;
    this.model = new Model();
    this.files = [];
    this.pane = 'timeline';
    this.comments = [];
    this.draft = localStorage.getItem('draft ' + id) ?? '';
    this.redraw = this.schedule.bind(this);
    this.draw();
    this.list = new List(root.querySelector('.timeline'), (item, el) => render(this.part(item), el));
    this.stream = new Stream(() => `/sessions/${id}/watch?after=${this.model.last}`, {
      open: () => { this.model.forget(); this.schedule(); },
      message: e => {
        this.model.add(e);
        if (e.kind === 'answer') forget(e.data.ask);
        this.schedule();
      },
      gone: () => { notice('The session was removed.'); location.hash = '#/'; },
    });
  }

  close() {
    this.closed = true;
    this.stream.close();
    this.list.close();
    cancelAnimationFrame(this.frame);
  }

  schedule() {
    if (this.closed) return;
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.draw(); });
  }

  show(pane) { this.pane = pane; this.schedule(); }

  draw() {
    const m = this.model, s = m.state;
    document.title = `${s.phase === 'requires_action' ? '● ' : ''}${flat(s.title) || 'Session'} – Parley`;
    render(html`<div class="session" data-phase=${s.phase}>
      <div class="bar">
        <h1 dir="auto">${visible(s.title || s.cwd?.split('/').at(-1) || this.id)}</h1>
        <span class="phase ${s.phase}">${phases[s.phase] ?? s.phase}</span>
        <span class="muted path">${visible(s.cwd)}${s.worktree ? html` · branch ${visible(s.worktree)}` : nothing}</span>
        <span class="muted">${m.cost ? money(m.cost) : nothing}</span>
        <nav aria-label="Views">
          <button aria-pressed=${this.pane === 'timeline'} @click=${() => this.show('timeline')}>Conversation</button>
          <button aria-pressed=${this.pane === 'review'} @click=${() => this.show('review')}>Changes (${changes(m.items).length})</button>
        </nav>
      </div>
      ${s.problem ? html`<p class="problem" role="alert">${visible(s.problem)}</p>` : nothing}
      ${agentAway(s)}
      ${this.tasks()}
      <div class="timeline" tabindex="0" role="group" aria-label="Conversation" ?hidden=${this.pane !== 'timeline'}></div>
      <div class="changes" tabindex="0" role="group" aria-label="Changes" ?hidden=${this.pane !== 'review'}>${this.pane === 'review' ? review(this) : nothing}</div>
      <div class="asks" aria-live="polite">${[...m.asks.values()].map(a => card(a, this.id, this.redraw))}</div>
      ${may('drive') ? this.composer() : html`<p class="muted watching">Your token may ${may('approve') ? 'watch and answer questions' : 'only watch'}.</p>`}
    </div>`, this.root);
    if (this.list) {
      this.list.set(m.items, m.changed);
      m.changed.clear();
    }
  }

  tasks() {
    const {todos, state} = this.model, tasks = state.tasks ?? [];
    const open = todos.filter(t => t?.status !== 'completed');
    if (!open.length && !tasks.length) return nothing;
    return html`<details class="tasks"><summary>${todos.length ? `Plan: ${todos.length - open.length} of ${todos.length} done` : ''}${todos.length && tasks.length ? ' · ' : ''}${tasks.length ? `${tasks.length} running in the background` : ''}</summary>
      <ul>${todoLines(todos)}${tasks.map(t => html`<li dir="auto">⏵ ${visible(t.description || t.id)}</li>`)}</ul></details>`;
  }

  // part draws an item. One of another form than agents write does not hide the others.
  part(x) {
    try {
      return this.item(x);
    } catch (err) {
      console.warn(err);
      return html`<div class="note">A part cannot be shown</div>`;
    }
  }

  item(x) {
    const again = () => { this.model.touch(x); this.schedule(); };
    switch (x.kind) {
    case 'prompt': return html`<article class="said" aria-label="Prompt">
      <header>${visible(x.by || 'Prompt')} ${when(x.time)} ${x.schedule ? html`<span class="tag">schedule</span>` : nothing}
        ${x.waits ? html`<span class="tag">waits</span>${may('drive') ? html` <button class="quiet" @click=${() => this.drop(x.uuid)}>Take back</button>` : nothing}` : nothing}${x.dropped ? html`<span class="tag">dropped</span>` : nothing}</header>
      <div class="plain" dir="auto">${visible(x.text)}</div></article>`;
    case 'text': return html`<article class="answer ${x.live ? 'live' : ''} ${x.error ? 'failed' : ''}" aria-label="Answer">${x.live ? html`<div class="prose plain" dir="auto">${visible(x.text)}</div>` : markdown(x.text, again)}</article>`;
    case 'thinking': return html`<details class="thinking"><summary>Thinking${x.live ? ' …' : ''}</summary><div class="plain" dir="auto">${visible(x.text)}</div></details>`;
    case 'tool': return this.tool(x, again);
    case 'result': return html`<div class="turn"><span>Turn ${x.turn} · ${duration(x.ms ?? 0)} · ${money(x.cost)}</span>
      ${x.failed ? html`<p class="problem">${visible(x.text)}</p>` : nothing}
      ${may('admin') ? html`<button class="quiet" @click=${() => this.fork(x.n)}>Fork here</button>` : nothing}
      ${may('drive') && x.uuid ? html`<button class="quiet" @click=${() => this.rewind(x.uuid)}>Rewind to here</button>` : nothing}</div>`;
    default: return html`<div class="note">${visible(x.text)} ${when(x.time)}</div>`;
    }
  }

  tool(x, again) {
    const input = x.input ?? {};
    const about = input.command ?? input.file_path ?? input.pattern ?? input.url ?? input.description ?? '';
    const status = x.live ? 'writing' : x.done ? (x.failed ? 'failed' : 'done') : x.ask && !x.ask.answer ? 'waits' : 'runs';
    const answer = x.ask?.answer;
    const toggled = e => {
      if (e.target !== e.currentTarget) return;
      if (e.target.open) x.open.add('card'); else x.open.delete('card');
      again();
    };
    return html`<details class="tool ${status}" ?open=${x.open.has('card')} @toggle=${toggled}>
      <summary><span class="name">${visible(x.name)}</span> <code>${visible(String(about).split('\n')[0].slice(0, 200))}</code>
        <span class="status">${status}${x.ended ? html` · ${duration(new Date(x.ended) - new Date(x.started))}` : status === 'runs' && x.seconds ? html` · ${duration(x.seconds * 1000)}` : nothing}</span></summary>
      ${x.open.has('card') ? html`${x.patch?.lines.length ? diffLines(x.patch.lines) : x.name === 'TodoWrite' && Array.isArray(input.todos) ? html`<ul class="todos">${todoLines(input.todos)}</ul>` : html`<h4>Input</h4>${folded(typeof input.command === 'string' ? input.command : JSON.stringify(input, null, 2), 'in', x.open, again)}`}
        ${answer ? html`<p class="muted">${answer.outcome === 'answered' ? html`${answer.response?.behavior === 'deny' ? 'Denied' : 'Allowed'} by ${visible(answer.by?.name)}${answer.response?.message ? html`: ${visible(answer.response.message)}` : nothing}` : visible(answer.outcome)}</p>` : nothing}
        ${x.done ? html`<h4>Output</h4>${folded(x.output, 'out', x.open, again)}` : nothing}` : nothing}
      ${x.children?.length ? html`<div class="children" role="group" aria-label="Subagent">${x.children.map(c => this.part(c))}</div>` : nothing}
    </details>${status === 'runs' && x.tail ? html`<pre class="code tail">${visible(x.tail)}</pre>` : nothing}`;
  }

  composer() {
    const m = this.model, busy = m.state.phase !== 'idle';
    const commands = /^\/\S*$/.test(this.draft) ? m.info.commands.filter(c => ('/' + c).startsWith(this.draft)).slice(0, 8) : [];
    const known = modes.includes(m.info.mode) || !m.info.mode ? modes : [...modes, m.info.mode];
    return html`<form class="composer" @submit=${e => { e.preventDefault(); this.send(); }} @dragover=${e => e.preventDefault()} @drop=${e => { e.preventDefault(); this.attach(e.dataTransfer.files); }}>
      ${commands.length ? html`<div class="commands" role="group" aria-label="Commands">${commands.map(c => html`<button type="button" @click=${() => this.write('/' + c + ' ')}>/${visible(c)}</button>`)}</div>` : nothing}
      ${this.files.length ? html`<div class="commands">${this.files.map((f, i) => html`<button type="button" aria-label="Remove ${flat(f.name)}" @click=${() => { this.files.splice(i, 1); this.schedule(); }}>${visible(f.name)} ✕</button>`)}</div>` : nothing}
      <label class="hidden" for="prompt">Prompt</label>
      <textarea id="prompt" rows="2" placeholder="Ask, or / for a command" .value=${this.draft} @input=${e => this.write(e.target.value)}
        @keydown=${e => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); this.send(); } else if (e.key === 'Escape') e.target.blur(); }}
        @paste=${e => this.attach(e.clipboardData.files)}></textarea>
      <div class="row">
        <label class="attach">Files<input type="file" multiple @change=${e => { this.attach(e.target.files); e.target.value = ''; }}></label>
        <label>Mode <select id="mode" .value=${m.info.mode || 'default'} @change=${e => this.control({subtype: 'set_permission_mode', mode: e.target.value})}>${known.map(x => html`<option value=${x} ?selected=${x === (m.info.mode || 'default')}>${flat(x)}</option>`)}</select></label>
        <label>Model <input id="model" size="14" autocomplete="off" .value=${m.info.model} @change=${e => this.control({subtype: 'set_model', model: e.target.value.trim()})}></label>
        <span class="gap"></span>
        ${busy ? html`<button type="button" class="no" id="interrupt" @click=${() => attempt(() => post(`/sessions/${this.id}/interrupt`))}>Interrupt</button>` : nothing}
        <button class="yes" id="send">${busy ? 'Queue' : 'Send'}</button>
      </div></form>`;
  }

  write(text) {
    this.draft = text;
    if (text) localStorage.setItem('draft ' + this.id, text); else localStorage.removeItem('draft ' + this.id);
    this.schedule();
  }

  async attach(list) {
    for (const f of list) {
      if (f.size > 5 << 20) { notice(`${flat(f.name)} is larger than 5 MB.`); continue; }
      if (f.type.startsWith('image/')) {
        const bytes = new Uint8Array(await f.arrayBuffer());
        let s = '';
        for (let i = 0; i < bytes.length; i += 0x8000) s += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
        this.files.push({name: f.name || 'picture', block: {type: 'image', source: {type: 'base64', media_type: f.type, data: btoa(s)}}});
      } else {
        this.files.push({name: f.name, block: {type: 'text', text: `${f.name}:\n\n${await f.text()}`}});
      }
    }
    this.schedule();
  }

  async send() {
    const text = this.draft.trim(), files = this.files;
    if (!text && !files.length || this.sending) return;
    this.sending = true;
    // A prompt that is sent again, because nobody knows whether it arrived, keeps its uuid.
    if (this.last?.text !== text) this.last = {text, uuid: uuid()};
    const body = files.length ? {content: [...files.map(f => f.block), ...(text ? [{type: 'text', text}] : [])]} : {text};
    const ok = await attempt(() => post(`/sessions/${this.id}/prompts`, {...body, uuid: this.last.uuid}));
    this.sending = false;
    if (!ok) return;
    this.last = null;
    this.files = [];
    if (this.draft.trim() === text) this.write('');
    this.list.stick = true;
    this.schedule();
  }

  async drop(uuid) {
    const out = await attempt(() => call('DELETE', `/sessions/${this.id}/prompts/${uuid}`));
    if (out && !out.dropped) notice('Its turn has begun.');
  }

  control(request) { attempt(() => post(`/sessions/${this.id}/control`, {request})); }

  async fork(n) {
    const made = await attempt(() => post(`/sessions/${this.id}/fork`, {n}));
    if (made) location.hash = '#/s/' + made.id;
  }

  async rewind(uuid) {
    if (await attempt(() => post(`/sessions/${this.id}/rewind`, {uuid}))) notice('The next prompt continues from there.');
  }
}

const marks = {completed: '☑', in_progress: '▶', pending: '☐'};
const todoLines = todos => todos.map(t => html`<li dir="auto">${marks[t?.status] ?? '☐'} ${visible(t?.content)}</li>`);

// uuid returns a random one. crypto.randomUUID is missing where the page is not secure.
function uuid() {
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = b[6] & 15 | 64;
  b[8] = b[8] & 63 | 128;
  return [...b].map(x => x.toString(16).padStart(2, '0')).join('').replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, '$1-$2-$3-$4-$5');
}
