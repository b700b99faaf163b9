// Settings: notifications on this device, and the permission rules of sessions.
import {html, nothing} from './lit-html.js';
import {attempt, call, get, may, notice, post} from './api.js';
import {Screen, table} from './manage.js';
import {flat, visible, when} from './text.js';

const events = {ask: 'a session asks', done: 'a turn is over', problem: 'there is a problem'};

export class Settings extends Screen {
  constructor(root) { super(root, 'Settings'); }

  async read() {
    const [push, list] = await Promise.all([get('/push'), get('/sessions')]);
    const dirs = new Map(list.sessions.map(s => [s.state.cwd, s.id])); // a session for each directory
    this.session ??= dirs.values().next().value;
    const rules = this.session && may('drive') ? await post(`/sessions/${this.session}/rules`, {}).catch(err => ({error: err.message})) : null;
    return {push, dirs, rules};
  }

  view() {
    const {push, dirs, rules} = this.data;
    return html`<h1>Settings</h1><section aria-label="Notifications"><h2>Notifications</h2>
      ${push.subscriptions.length ? table('Subscriptions', ['Through', 'When', 'Since', ''], push.subscriptions.map(s => [visible(s.service), s.events.map(e => events[e] ?? e).join(', '), when(s.created),
        html`<button class="no" @click=${() => this.act(() => call('DELETE', '/push/' + s.id))}>Remove</button>`])) : html`<p class="empty">None of your browsers receives notifications while the console is closed.</p>`}
      <form class="new" id="push" @submit=${e => { e.preventDefault(); this.subscribe(e.target); }}><fieldset><legend>Notify me on this device when</legend>
        ${Object.entries(events).map(([name, text]) => html`<label class="option"><input type="checkbox" name="event" value=${name} ?checked=${name !== 'done'}> ${text}</label>`)}</fieldset>
        <button class="yes">Turn on</button></form></section>
      ${rules ? html`<section aria-label="Rules"><h2>Permission rules</h2>
        <label>Directory <select id="directory" @change=${e => { this.session = e.target.value; this.said = ''; this.load(); }}>${[...dirs].map(([dir, id]) => html`<option value=${id} ?selected=${id === this.session}>${flat(dir)}</option>`)}</select></label>
        ${rules.error ? html`<p class="problem">${visible(rules.error)}</p>` : this.rules(rules)}</section>` : nothing}`;
  }

  rules(rules) {
    return html`<p class="muted">The rules of the settings files, in mode ${visible(rules.mode)}. The flags of a session add to them.</p>
        ${rules.rules.length ? table('Permission rules', ['Decision', 'Rule', 'From'], rules.rules.map(r => [visible(r.behavior), html`<code class="exact">${visible(r.rule, true)}</code>`, html`<span class="path">${visible(r.source)}</span>`]), 'rules') : html`<p class="empty">There are no rules: the mode decides.</p>`}
        <form class="new" id="explain" @submit=${e => { e.preventDefault(); this.explain(e.target); }}><h2>Explain a decision</h2>
          <label>Tool <input name="tool" required autocomplete="off" value="Bash"></label>
          <label>Command, or the input as JSON <textarea name="input" rows="2" required placeholder="git push"></textarea></label>
          <button class="yes">Explain</button>
          ${this.said ? html`<pre class="code" id="said" role="status" tabindex="0">${visible(this.said)}</pre>` : nothing}</form>`;
  }

  async explain(form) {
    const {tool, input} = Object.fromEntries(new FormData(form));
    let value;
    try { value = JSON.parse(input); } catch { /* a command */ }
    if (typeof value !== 'object' || value === null) value = tool === 'Bash' ? {command: input} : {file_path: input};
    const out = await attempt(() => post(`/sessions/${this.session}/rules`, {tool: tool.trim(), input: value}));
    if (!out) return;
    this.said = out.explanation;
    this.draw();
  }

  async subscribe(form) {
    const wanted = new FormData(form).getAll('event');
    if (!wanted.length) { notice('Choose at least one event.'); return; }
    if (!('serviceWorker' in navigator && 'PushManager' in window)) { notice('Notifications need https.'); return; }
    await this.act(async () => {
      if (await Notification.requestPermission() !== 'granted') throw new Error('The browser does not allow notifications from this page.');
      await navigator.serviceWorker.register('push.js');
      const worker = await navigator.serviceWorker.ready;
      const key = Uint8Array.from(atob(this.data.push.key.replace(/-/g, '+').replace(/_/g, '/')), c => c.charCodeAt(0));
      const made = await worker.pushManager.subscribe({userVisibleOnly: true, applicationServerKey: key});
      return post('/push', {...made.toJSON(), events: wanted});
    });
  }
}
