// Approval cards: what is asked, exactly, and the answer to it.
import {html, nothing} from './lit-html.js';
import {attempt, may, notice, post} from './api.js';
import {diff, flat, link, markdown, visible} from './text.js';

// A card takes keys only after it was shown: earlier keys are no answer.
const seen = 350; // milliseconds

const cards = new Map(); // by the id of the question: what the person has entered

function cardOf(ask, session, again) {
  let c = cards.get(ask.id);
  if (!c) {
    c = {ask, session, reason: '', choices: {}, texts: {}, fields: {}, ready: false, sent: false};
    cards.set(ask.id, c);
    setTimeout(() => { c.ready = true; c.again(); }, seen);
  }
  c.again = again;
  return c;
}

export function forget(id) { cards.delete(id); }

// always returns the rule changes that avoid a question in this session.
export function always(req) {
  if (req.suppress_always_allow_rule || req.requires_user_interaction) return [];
  return (req.permission_suggestions ?? []).map(u => ({...u, destination: 'session'}));
}

// covers says what a change of the rules allows.
export function covers(u) {
  switch (u.type) {
  case 'setMode': return u.mode === 'acceptEdits' ? 'edits of files here, without asking' : `the mode ${u.mode}`;
  case 'addDirectories': return `work in ${(u.directories ?? []).join(', ')}`;
  }
  return (u.rules ?? []).map(r => r.ruleContent ? `${r.toolName}(${r.ruleContent})` : `every use of ${r.toolName}`).join(', ');
}

// updatesOf returns the rule changes of a question's second answer.
function updatesOf(ask) {
  if (ask.kind === 'plan') return [{type: 'setMode', mode: 'acceptEdits', destination: 'session'}];
  return ask.kind === 'permission' ? always(ask.request ?? {}) : [];
}

async function send(c, body) {
  if (c.sent) return;
  c.sent = true;
  c.again();
  const ok = await attempt(() => post(`/sessions/${c.session}/approvals/${c.ask.id}`, {shown: c.ask.hash, ...body}));
  if (!ok) { c.sent = false; c.again(); }
}

const denied = 'The user said no.';

const act = {
  allow(c) {
    const form = document.getElementById('fields-' + c.ask.id);
    if (form && !form.reportValidity()) return;
    if (c.ask.kind === 'choice' && (c.ask.request.input?.questions ?? []).some(q => !answersTo(c, q).length)) { notice('Answer every question first.'); return; }
    send(c, answerOf(c, true));
  },
  always(c) {
    const updates = updatesOf(c.ask);
    if (!updates.length || !may('drive')) { notice('There is no rule for this that you may add.'); return; }
    send(c, {response: {behavior: 'allow', updatedPermissions: updates}});
  },
  deny(c) { send(c, answerOf(c, false)); },
  reason(c) { document.getElementById('reason-' + c.ask.id)?.focus(); },
};

function answerOf(c, yes) {
  const req = c.ask.request;
  if (c.ask.kind === 'elicitation') return {response: yes ? {action: 'accept', ...(req.requested_schema ? {content: c.fields} : {})} : {action: 'decline'}};
  if (c.ask.kind === 'dialog') return {response: {behavior: yes ? 'completed' : 'cancelled'}};
  if (!yes) return {behavior: 'deny', message: c.reason.trim() || denied};
  if (c.ask.kind === 'choice') {
    const answers = {};
    for (const q of req.input?.questions ?? []) answers[q.question] = answersTo(c, q).join(', ');
    return {response: {behavior: 'allow', updatedInput: {...req.input, answers}}};
  }
  return {behavior: 'allow'};
}

// answersTo returns what the person has answered to a question.
function answersTo(c, q) {
  const text = c.texts[q.question]?.trim();
  return [...(c.choices[q.question] ?? []), ...(text ? [text] : [])];
}

const keys = {y: 'allow', Y: 'always', n: 'deny', N: 'reason'};

// key handles a key for the card that has the focus, or else the first one.
export function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return false;
  if (event.target.closest?.('input, textarea, select, [contenteditable]')) return false;
  const el = event.target.closest?.('.approval') ?? document.querySelector('.approval');
  const c = el && cards.get(el.dataset.ask);
  if (!c) return false;
  event.preventDefault();
  if (event.repeat || !c.ready || c.sent || !may('approve')) return true;
  act[keys[event.key]](c);
  return true;
}

// card draws a question. One of another form than agents write is shown as JSON, and can only be denied.
export function card(ask, session, again) {
  try {
    return full(ask, session, again);
  } catch (err) {
    console.warn(err);
    return html`<section class="approval" data-ask=${ask.id} aria-label="Approval" tabindex="-1"><h3>A question that cannot be shown</h3>
      <pre class="code exact" tabindex="0">${visible(JSON.stringify(ask.request) ?? '', true)}</pre>
      ${may('approve') ? html`<div class="answers"><button class="no" @click=${() => act.deny(cardOf(ask, session, again))}>Deny</button></div>` : nothing}</section>`;
  }
}

function full(ask, session, again) {
  const c = cardOf(ask, session, again), req = ask.request ?? {};
  const rules = may('drive') ? updatesOf(ask) : [];
  const open = c.ready && !c.sent && may('approve');
  const yes = {plan: 'Carry out the plan', choice: 'Send the answer', elicitation: 'Accept', dialog: 'OK'}[ask.kind] ?? 'Allow once';
  const no = {plan: 'Keep planning', choice: 'Do not answer', elicitation: 'Decline', dialog: 'Cancel'}[ask.kind] ?? 'Deny';
  return html`<section class="approval" data-ask=${ask.id} data-ready=${String(c.ready)} aria-label="Approval" tabindex="-1">
    <h3>${title(ask)}</h3>
    ${body(c)}
    <dl class="facts">
      ${(ask.paths ?? []).map(p => html`<dt>File</dt><dd><code class="exact">${visible(p, true)}</code></dd>`)}
      ${req.blocked_path && !(ask.paths ?? []).includes(req.blocked_path) ? html`<dt>About</dt><dd><code class="exact">${visible(req.blocked_path, true)}</code></dd>` : nothing}
      ${req.agent_id ? html`<dt>For</dt><dd>a subagent</dd>` : nothing}
      <dt>Why</dt><dd>${why(req, ask)}</dd>
      ${rules.length && ask.kind !== 'plan' ? html`<dt>Always</dt><dd>would allow, in this session: ${rules.map((u, i) => html`${i ? '; ' : ''}<code class="exact">${visible(covers(u), true)}</code>`)}</dd>` : nothing}
      ${ask.expires ? html`<dt>Expires</dt><dd>${new Date(ask.expires).toLocaleString()}; then the answer is no</dd>` : nothing}
    </dl>
    ${!may('approve') ? html`<p class="muted">Your token may only watch.</p>` : html`
    <div class="answers">
      <button class="yes" ?disabled=${!open} @click=${() => act.allow(c)}>${yes} <kbd>y</kbd></button>
      ${rules.length ? html`<button ?disabled=${!open} @click=${() => act.always(c)}>${ask.kind === 'plan' ? 'Carry it out and accept edits' : 'Always'} <kbd>Y</kbd></button>` : nothing}
      <button class="no" ?disabled=${!open} @click=${() => act.deny(c)}>${no} <kbd>n</kbd></button>
    </div>
    ${ask.kind === 'permission' || ask.kind === 'plan' ? html`<form class="reason" @submit=${e => { e.preventDefault(); if (c.ready) act.deny(c); }}>
      <label for="reason-${ask.id}">Deny with a reason <kbd>N</kbd></label>
      <div class="row"><input id="reason-${ask.id}" autocomplete="off" placeholder="What should it do instead?" .value=${c.reason} @input=${e => { c.reason = e.target.value; }} @keydown=${e => { if (e.key === 'Escape') e.target.blur(); }}>
      <button class="no" ?disabled=${!open}>Deny</button></div></form>` : nothing}`}
    ${c.sent ? html`<p class="muted" role="status">Sent …</p>` : nothing}
  </section>`;
}

function title(ask) {
  const tool = flat(ask.request?.display_name || ask.tool);
  return {plan: 'Carry out this plan?', choice: 'A question', elicitation: `The MCP server ${flat(ask.request?.mcp_server_name)} asks`, dialog: `The agent shows a dialog: ${flat(ask.request?.dialog_kind)}`}[ask.kind] ?? `May it use ${tool}?`;
}

function why(req, ask) {
  if (ask.kind !== 'permission') return 'the agent asks you';
  const parts = [];
  if (req.decision_reason) parts.push(visible(req.decision_reason, true));
  if (req.matched_ask_rule) parts.push(html` the rule <code>${visible(`${req.matched_ask_rule.tool_name}(${req.matched_ask_rule.rule_content ?? ''})`, true)}</code> of ${visible(req.matched_ask_rule.source, true)}`);
  return parts.length ? parts : 'no rule allows it in this mode';
}

// body shows what is asked: a command and a change whole, and everything else as JSON.
function body(c) {
  const {ask, again} = c, req = ask.request ?? {}, input = req.input ?? {};
  if (ask.kind === 'choice') return questions(c, input.questions ?? []);
  if (ask.kind === 'plan') return markdown(String(input.plan ?? ''), again);
  if (ask.kind === 'elicitation') return elicitation(c, req);
  const raw = JSON.stringify(ask.kind === 'dialog' ? req : input, null, 2);
  const all = shown => html`<details class="raw" ?open=${!shown}><summary>Full input</summary><pre class="code exact" tabindex="0">${visible(raw, true)}</pre></details>`;
  // A description that only repeats the file adds nothing.
  const said = req.description && !(ask.paths ?? []).some(p => ('/' + p).endsWith('/' + req.description)) ? html`<p class="muted">The agent says: “<bdi>${visible(req.description, true)}</bdi>”</p>` : nothing;
  if (typeof input.command === 'string') return html`<pre class="code exact command" tabindex="0">${visible(input.command, true)}</pre>${said}${all(true)}`;
  if (ask.diff) return html`${diff(ask.diff, again, true)}${said}${all(true)}`;
  return html`${said}${all(false)}`;
}

function questions(c, list) {
  return list.map((q, i) => html`<fieldset><legend>${visible(q.question, true)}</legend>
    ${(q.options ?? []).map(o => html`<label class="option"><input type=${q.multiSelect ? 'checkbox' : 'radio'} name="q${i}-${c.ask.id}" .checked=${c.choices[q.question]?.has(o.label) ?? false}
      @change=${e => {
        const set = q.multiSelect ? (c.choices[q.question] ?? new Set()) : new Set();
        if (e.target.checked) set.add(o.label); else set.delete(o.label);
        c.choices[q.question] = set;
        if (!q.multiSelect) c.texts[q.question] = e.target.closest('fieldset').querySelector('.other').value = '';
        c.again();
      }}> <span>${visible(o.label, true)} <span class="muted">${visible(o.description, true)}</span></span></label>
      ${o.preview ? html`<details><summary>Preview of ${flat(o.label)}</summary><pre class="code" tabindex="0">${visible(o.preview)}</pre></details>` : nothing}`)}
    <label class="option">Another answer <input class="other" autocomplete="off" .value=${c.texts[q.question] ?? ''} @input=${e => {
      c.texts[q.question] = e.target.value;
      if (!q.multiSelect && e.target.value) { // the page may not have drawn the choice yet
        c.choices[q.question] = new Set();
        for (const r of e.target.closest('fieldset').querySelectorAll('[type=radio]')) r.checked = false;
      }
      c.again();
    }}></label></fieldset>`);
}

function options(f) {
  if (Array.isArray(f.enum)) return f.enum.map((v, i) => ({value: v, title: f.enumNames?.[i] ?? v}));
  const named = f.oneOf ?? f.anyOf;
  if (Array.isArray(named)) return named.map(o => ({value: o?.const, title: o?.title ?? o?.const}));
}

const list = x => Array.isArray(x) ? x : []; // schemas come from servers: nothing about them is certain

const inputs = {email: 'email', uri: 'url', date: 'date'}; // by format

function elicitation(c, req) {
  const schema = req.requested_schema ?? {}, all = schema.properties ?? {};
  const names = [...new Set([...list(req.property_order), ...Object.keys(all)])].filter(n => Object.hasOwn(all, n) && all[n] && typeof all[n] === 'object');
  for (const n of names) { // what the person sees is what is sent
    if (!c.begun && all[n].default !== undefined) c.fields[n] = all[n].default;
    if (!c.begun && all[n].type === 'boolean') c.fields[n] ??= false;
  }
  c.begun = true;
  const set = (n, v) => {
    if (v === '' || v === undefined || Number.isNaN(v)) delete c.fields[n]; else c.fields[n] = v;
    c.again();
  };
  return html`<p dir="auto">${visible(req.message, true)}</p>${req.url ? html`<p>${link(req.url, visible(req.url, true), req.url)}</p>` : nothing}
    <form id="fields-${c.ask.id}" class="fields" @submit=${e => { e.preventDefault(); if (c.ready && may('approve')) act.allow(c); }}>${names.map(n => field(n, all[n], list(schema.required).includes(n), c.fields, v => set(n, v)))}</form>`;
}

function field(name, f, required, fields, set) {
  const value = fields[name];
  const label = html`${visible(f.title || name, true)}${required ? html` <span class="muted">(required)</span>` : nothing} <span class="muted">${visible(f.description, true)}</span>`;
  const many = f.type === 'array' ? options(f.items ?? {}) ?? [] : null, one = options(f);
  if (many) {
    return html`<fieldset><legend>${label}</legend>${many.map(o => html`<label class="option"><input type="checkbox" .checked=${list(value).includes(o.value)}
      @change=${e => set(many.map(x => x.value).filter(v => v === o.value ? e.target.checked : list(fields[name]).includes(v)))}> ${visible(o.title, true)}</label>`)}</fieldset>`;
  }
  if (one) {
    return html`<label class="option">${label} <select ?required=${required} @change=${e => set(one[e.target.selectedIndex - 1]?.value)}><option value=""></option>${one.map(o => html`<option ?selected=${o.value === value}>${flat(o.title)}</option>`)}</select></label>`;
  }
  if (f.type === 'boolean') return html`<label class="option"><input type="checkbox" .checked=${value ?? false} @change=${e => set(e.target.checked)}> ${label}</label>`;
  const number = f.type === 'number' || f.type === 'integer';
  return html`<label class="option">${label} <input type=${number ? 'number' : inputs[f.format] ?? 'text'} autocomplete="off" ?required=${required} .value=${value ?? ''}
    step=${number ? (f.type === 'integer' ? '1' : 'any') : nothing} min=${f.minimum ?? nothing} max=${f.maximum ?? nothing} minlength=${f.minLength ?? nothing} maxlength=${f.maxLength ?? nothing}
    @change=${e => set(number ? e.target.valueAsNumber : e.target.value)}></label>`;
}
