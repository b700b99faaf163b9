// The overview: all sessions, those that wait for somebody first.
import {html, nothing, render} from './lit-html.js';
import {attempt, get, may, post, Stream} from './api.js';
import {card, forget} from './approval.js';
import {agentAway, flat, money, visible, when} from './text.js';

const groups = [
  ['requires_action', 'Needs attention', 'Nothing waits for you.'],
  ['running', 'Working', 'Nothing runs.'],
  ['idle', 'Ready', 'There are no other sessions. “New session” starts one.'],
];

export class Overview {
  constructor(root) {
    this.root = root;
    this.sessions = new Map();
    this.asks = new Map(); // by session
    this.query = '';
    this.found = null;
    this.redraw = this.schedule.bind(this);
    this.stream = new Stream(() => '/watch', {
      open: () => { this.connected = true; this.sessions.clear(); this.schedule(); }, // all of them follow
      message: info => this.add(info),
    });
    this.draw();
    performance.mark('shown');
  }

  close() {
    this.closed = true;
    this.stream.close();
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
  }

  schedule() {
    if (this.closed) return;
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.draw(); });
  }

  async add(info) {
    const before = this.sessions.get(info.id);
    if (info.removed) {
      this.sessions.delete(info.id);
      this.asks.delete(info.id);
    } else {
      this.sessions.set(info.id, info);
    }
    this.schedule();
    const waiting = (info.state?.waiting ?? []).filter(w => w.kind === 'ask').map(w => w.id);
    const known = this.asks.get(info.id) ?? [];
    for (const a of known) if (!waiting.includes(a.id)) forget(a.id);
    if (!waiting.length) { this.asks.delete(info.id); return; }
    if (before?.state.phase !== 'requires_action') notify(info);
    if (waiting.every(id => known.some(a => a.id === id))) {
      this.asks.set(info.id, known.filter(a => waiting.includes(a.id)));
      return;
    }
    try {
      const list = await get(`/sessions/${info.id}/approvals`);
      this.asks.set(info.id, list.approvals);
    } catch { /* the next state brings it again */ }
    this.schedule();
  }

  draw() {
    const attention = [...this.sessions.values()].filter(i => i.state.phase === 'requires_action').length;
    document.title = `${attention ? `(${attention}) ` : ''}Parley`;
    const list = this.found ?? [...this.sessions.values()].filter(i => !i.state.archived).sort((a, b) => b.modified < a.modified ? -1 : 1);
    render(html`<div class="overview">
      <div class="row tools"><label class="hidden" for="search">Search</label><input id="search" type="search" placeholder="Search prompts, answers and directories" .value=${this.query} @input=${e => this.search(e.target.value)}>
        ${may('admin') ? html`<button id="new" class="yes" aria-expanded=${Boolean(this.making)} @click=${() => { this.making = !this.making; this.schedule(); }}>New session</button>` : nothing}</div>
      ${this.making ? this.form() : nothing}
      ${this.found && !this.found.length ? html`<p class="empty" role="status">No results.</p>` : nothing}
      ${!this.connected && !this.found ? html`<p class="empty">Waiting for the connection …</p>` : groups.map(([phase, name, none]) => {
        const some = list.filter(i => i.state.phase === phase);
        if (this.found && !some.length) return nothing;
        return html`<section class="group ${phase}" aria-label=${name}><h2>${name} <span class="count">${some.length}</span></h2>
          ${some.length ? html`<ul>${some.map(i => this.row(i))}</ul>` : html`<p class="empty">${none}</p>`}</section>`;
      })}</div>`, this.root);
  }

  row(info) {
    const s = info.state;
    return html`<li class="entry"><a href="#/s/${info.id}"><strong dir="auto">${visible(s.title || info.id.slice(0, 8))}</strong>
        <span class="muted path">${visible(s.cwd)}${s.worktree ? html` · ${visible(s.worktree)}` : nothing}</span>
        <span class="muted">${when(s.since)}${s.queued?.length ? ` · ${s.queued.length} queued` : ''}${s.tasks?.length ? ` · ${s.tasks.length} tasks` : ''}${s.cost_usd ? ` · ${money(s.cost_usd)}` : ''}</span></a>
      ${s.problem ? html`<p class="problem">${visible(s.problem)}</p>` : nothing}
      ${agentAway(s)}
      ${(info.matches ?? []).map(m => html`<p class="match" dir="auto">… ${visible(m.text)} …</p>`)}
      ${(this.asks.get(info.id) ?? []).map(a => card(a, info.id, this.redraw))}</li>`;
  }

  form() {
    return html`<form class="new" @submit=${e => { e.preventDefault(); this.create(e.target); }}>
      <label>Directory <input name="cwd" required autocomplete="off" .value=${localStorage.getItem('cwd') ?? [...this.sessions.values()][0]?.state.cwd ?? ''}></label>
      <label>Prompt <textarea name="prompt" rows="3" required></textarea></label>
      <label>Branch for a worktree of its own <input name="worktree" autocomplete="off" placeholder="none"></label>
      <button class="yes">Start</button></form>`;
  }

  async create(form) {
    const data = Object.fromEntries(new FormData(form));
    if (!data.worktree) delete data.worktree;
    const made = await attempt(() => post('/sessions', data));
    if (!made) return;
    localStorage.setItem('cwd', data.cwd);
    location.hash = '#/s/' + made.id;
  }

  search(query) {
    this.query = query;
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const found = query.trim() ? await attempt(() => get('/sessions?limit=50&q=' + encodeURIComponent(query.trim()))) : null;
      if (query !== this.query) return;
      this.found = found?.sessions ?? null;
      this.schedule();
    }, 150);
  }
}

// notify tells somebody who looks elsewhere that a session waits.
function notify(info) {
  if (document.visibilityState === 'visible' || !('Notification' in window) || Notification.permission !== 'granted') return;
  const n = new Notification('Needs attention', {body: flat(info.state.title || info.state.cwd), tag: info.id});
  n.onclick = () => { focus(); location.hash = '#/s/' + info.id; };
}
