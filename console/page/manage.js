// The screens beside sessions: schedules, devices, costs and the audit log.
import {html, nothing, render} from './lit-html.js';
import {attempt, call, get, may, post} from './api.js';
import {flat, money, visible, when} from './text.js';

// A Screen loads something and shows it.
export class Screen {
  constructor(root, title) {
    this.root = root;
    document.title = `${title} – Parley`;
    this.load();
  }

  close() { this.closed = true; }

  async load() {
    const data = await attempt(() => this.read());
    if (this.closed || !data) return;
    this.data = data;
    this.draw();
  }

  draw() { render(html`<div class="manage">${this.view()}</div>`, this.root); }

  // act sends something and loads the screen again.
  async act(work) {
    const out = await attempt(work);
    if (out) await this.load();
    return out;
  }
}

// table shows rows of cells below heads. On a phone, each cell is a line with its head.
export function table(label, heads, rows, id) {
  return html`<div class="wide" tabindex="0" role="group" aria-label=${label}><table id=${id ?? nothing}><thead><tr>${heads.map(h => h ? html`<th>${h}</th>` : html`<td></td>`)}</tr></thead>
    <tbody>${rows.map(cells => html`<tr>${cells.map((c, i) => html`<td data-head=${heads[i]}><div>${c}</div></td>`)}</tr>`)}</tbody></table></div>`;
}

export class Schedules extends Screen {
  constructor(root) { super(root, 'Schedules'); }

  async read() {
    const [schedules, sessions] = await Promise.all([get('/schedules'), get('/sessions')]);
    return {...schedules, ...sessions};
  }

  view() {
    const {schedules, sessions} = this.data;
    const name = id => flat(sessions.find(s => s.id === id)?.state.title || id.slice(0, 8));
    return html`<h1>Schedules</h1>
      ${schedules.length ? table('Schedules', ['Prompt', 'When', 'Session', 'Last run', ''], schedules.map(s => [html`<span dir="auto">${visible(s.prompt)}</span>`, s.cron ? html`<code>${visible(s.cron)}</code>` : new Date(s.at).toLocaleString(),
        html`<a href="#/s/${s.session}">${name(s.session)}</a>`, html`${s.fired ? when(s.fired) : 'never'}${s.missed ? ` (${s.missed} missed)` : ''}`,
        may('drive') ? html`<button class="no" @click=${() => this.act(() => call('DELETE', '/schedules/' + s.id))}>Remove</button>` : nothing])) : html`<p class="empty">There are no schedules. A schedule sends a prompt to a session at set times.</p>`}
      ${may('drive') && sessions.length ? html`<form class="new" @submit=${e => { e.preventDefault(); this.add(e.target); }}><h2>Add a schedule</h2>
        <label>Session <select name="session">${sessions.map(s => html`<option value=${s.id}>${name(s.id)}</option>`)}</select></label>
        <label>Prompt <textarea name="prompt" rows="2" required></textarea></label>
        <label>Cron expression, five fields <input name="cron" placeholder="0 9 * * 1-5" autocomplete="off"></label>
        <label>or once at <input name="at" type="datetime-local"></label>
        <button class="yes">Add</button></form>` : nothing}`;
  }

  async add(form) {
    const {session, prompt, cron, at} = Object.fromEntries(new FormData(form));
    if (await this.act(() => post('/schedules', {session, prompt, ...(cron ? {cron} : {}), ...(at ? {at: new Date(at).toISOString()} : {})}))) form.reset();
  }
}

export class Devices extends Screen {
  constructor(root) { super(root, 'Devices'); }

  read() { return get('/tokens'); }

  view() {
    return html`<h1>Devices and tokens</h1>
      ${this.made ? html`<section class="made" aria-label="New token"><h2>Token of ${visible(this.made.token.name)}</h2><p>It is shown only once. Open this link on the device:</p><pre class="code" tabindex="0">${visible(this.made.link || this.made.secret)}</pre></section>` : nothing}
      ${table('Tokens', ['Name', 'Scope', 'Created', 'Last used', 'Expires', ''], this.data.tokens.map(t => [visible(t.name), visible(t.scope), when(t.created), t.used ? html`${when(t.used)} ${visible(t.from)}` : 'never', t.expires ? when(t.expires) : 'never',
        html`<button class="no" @click=${() => this.act(() => call('DELETE', '/tokens/' + t.id))}>Revoke</button>`]))}
      <form class="new" @submit=${e => { e.preventDefault(); this.add(e.target); }}><h2>Add a device</h2>
        <label>Name <input name="name" required autocomplete="off" placeholder="my phone"></label>
        <label>Access <select name="scope"><option value="view">watch</option><option value="approve">watch and approve</option><option value="drive">watch, approve and send prompts</option><option value="admin">do everything</option><option value="agent">run a session as an agent</option></select></label>
        <button class="yes">Create a token</button></form>`;
  }

  async add(form) {
    const made = await attempt(() => post('/tokens', Object.fromEntries(new FormData(form))));
    if (!made) return;
    this.made = made;
    form.reset();
    await this.load();
  }
}

export class Audit extends Screen {
  constructor(root) { super(root, 'Audit log'); }

  read() { return get('/audit?limit=500'); }

  view() {
    return html`<h1>Audit log</h1><p class="muted">All changes and all refused requests, newest first.</p>
      ${this.data.events.length ? table('Audit log', ['When', 'Who', 'From', 'Action', 'Result'], this.data.events.map(e => [new Date(e.time).toLocaleString(), visible(e.by || 'nobody'), visible(e.from),
        html`<code>${visible(e.action)}</code> ${e.session ? html`<a href="#/s/${e.session}">${visible(e.session.slice(0, 8))}</a>` : nothing}`, html`<span class=${e.status >= 400 ? 'problem' : ''}>${e.status}${e.reason ? html` ${visible(e.reason)}` : nothing}</span>`])) : html`<p class="empty">There are no entries.</p>`}`;
  }
}

const sum = (list, of) => list.reduce((n, x) => n + of(x), 0);
const tokens = c => c.input_tokens + c.output_tokens + c.cache_read_tokens + c.cache_write_tokens;

export class Cost extends Screen {
  constructor(root) {
    super(root, 'Cost');
    this.by = 'model';
    this.unit = 'usd';
    this.changed = new AbortController(); // a plot has a fixed size and fixed colours
    const again = () => { if (this.data) this.draw(); }, {signal} = this.changed;
    addEventListener('resize', again, {signal});
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again, {signal});
  }

  close() { super.close(); this.changed.abort(); this.plot?.destroy(); }

  async read() {
    const [costs, sessions] = await Promise.all([get('/costs'), get('/sessions?archived=true')]);
    await plots();
    return {...costs, ...sessions};
  }

  label(key) { return this.by === 'session' ? flat(this.data.sessions.find(s => s.id === key)?.state.title || key.slice(0, 8)) : flat(key); }

  view() {
    const {costs} = this.data;
    if (!costs.length) return html`<h1>Cost</h1><p class="empty">Nothing has been spent yet. Each turn of a session adds its cost here.</p>`;
    const groups = [...Map.groupBy(costs, c => c[this.by])].sort((a, b) => sum(b[1], c => c.usd) - sum(a[1], c => c.usd));
    return html`<h1>Cost</h1><p>${money(sum(costs, c => c.usd))} and ${sum(costs, tokens).toLocaleString()} tokens in all.</p>
      <div class="row"><label>By <select id="by" @change=${e => { this.by = e.target.value; this.draw(); }}>${['model', 'session', 'day'].map(x => html`<option ?selected=${x === this.by}>${x}</option>`)}</select></label>
      <label>Show <select id="unit" @change=${e => { this.unit = e.target.value; this.draw(); }}><option value="usd">money</option><option value="tokens">tokens</option></select></label></div>
      <div id="plot" role="img" aria-label="Costs by day"></div>
      ${table('Costs', [this.by[0].toUpperCase() + this.by.slice(1), 'Cost', 'Input', 'Output', 'Cache read', 'Cache written'], groups.map(([key, list]) => [this.by === 'session' ? html`<a href="#/s/${key}">${this.label(key)}</a>` : this.label(key), money(sum(list, c => c.usd)),
        ...['input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens'].map(k => sum(list, c => c[k]).toLocaleString())]))}`;
  }

  draw() {
    super.draw();
    const el = this.root.querySelector('#plot');
    this.plot?.destroy();
    if (!el) return;
    const {costs} = this.data;
    const by = this.by === 'day' ? 'model' : this.by;
    const days = [...new Set(costs.map(c => c.day))].sort();
    const times = days.map(d => new Date(d + 'T00:00').getTime() / 1000);
    const keys = [...new Set(costs.map(c => c[by]))].slice(0, 6);
    const value = c => this.unit === 'usd' ? c.usd : tokens(c);
    const ink = getComputedStyle(document.body).color;
    const colors = ['#3b7dd8', '#d9822b', '#2f9e63', '#a35bd0', '#c8434b', '#8a8f98'];
    const axis = {stroke: ink, grid: {stroke: '#8886', width: 1}, ticks: {show: false}};
    this.plot = new uPlot({
      width: Math.max(280, el.clientWidth), height: 240, legend: {live: false},
      axes: [{...axis, incrs: [1, 7, 30, 365].map(d => d * 86400)}, {...axis, size: 70, values: (_, list) => list.map(v => this.unit === 'usd' ? money(v) : v.toLocaleString())}],
      scales: {x: {range: () => [times[0] - 86400, times.at(-1) + 86400]}, y: {range: (_, low, high) => [0, high * 1.1 || 1]}},
      series: [{}, ...keys.map((k, i) => ({label: this.by === 'session' ? this.label(k) : flat(k), stroke: colors[i], fill: colors[i] + '33', width: 2, points: {size: 7, fill: colors[i]}}))],
    }, [times, ...keys.map(k => days.map(d => sum(costs.filter(c => c.day === d && c[by] === k), value)))], el);
  }
}

// plots loads what draws plots, which is larger than the rest of the page.
let loading;
function plots() {
  loading ??= new Promise((ok, fail) => {
    const style = Object.assign(document.createElement('link'), {rel: 'stylesheet', href: 'uplot.css'});
    const script = Object.assign(document.createElement('script'), {src: 'uplot.js', onload: ok, onerror: () => fail(new Error('The plots cannot be loaded.'))});
    document.head.append(style, script);
  });
  return loading;
}
