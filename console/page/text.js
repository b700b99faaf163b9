// Only this file turns text of a model or a tool into elements: as text, never as HTML, with
// the numbers of characters that a screen would hide.
import {html, nothing} from './lit-html.js';
import {post} from './api.js';

// odd matches characters without a shape: controls, changes of direction, odd blanks, tags
// and unassigned ones.
const odd = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\u{1d159}\u{e0000}-\u{e0fff}]/gu;
const emoji = /\p{Extended_Pictographic}|\p{Emoji_Modifier}|[\d#*]/u;

// visible returns text for a template, with its line feeds and tabs. An exact text, for
// approval, shows every odd character; in others emoji may contain some.
export function visible(text, exact = false) {
  text = String(text ?? '');
  if (text.search(odd) < 0) return text;
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(odd)) {
    const c = match[0], at = match.index;
    if (c === '\n' || c === '\t') continue;
    if (c === '\r' && text[at + 1] === '\n' && !exact) { parts.push(text.slice(from, at)); from = at + 1; continue; }
    if (!exact && (c === '\u200d' || c === '\ufe0f') && emoji.test([...text.slice(Math.max(0, at - 3), at)].at(-1) ?? '')) continue;
    parts.push(text.slice(from, at), html`<span class="odd" title="an invisible character">U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}</span>`);
    from = at + c.length;
  }
  parts.push(text.slice(from));
  return parts;
}

// flat is visible for titles and labels.
export const flat = text => String(text ?? '').replace(odd, c => c === '\n' || c === '\t' ? ' ' : `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`);

const tags = {
  p: c => html`<p dir="auto">${c}</p>`, h4: c => html`<h4 dir="auto">${c}</h4>`, h5: c => html`<h5 dir="auto">${c}</h5>`, h6: c => html`<h6 dir="auto">${c}</h6>`,
  blockquote: c => html`<blockquote>${c}</blockquote>`, hr: () => html`<hr>`, br: () => html`<br>`,
  ul: c => html`<ul>${c}</ul>`, ol: (c, n) => html`<ol start=${n.start ?? 1}>${c}</ol>`, li: c => html`<li dir="auto">${c}</li>`,
  code: c => html`<code>${c}</code>`, em: c => html`<em>${c}</em>`, strong: c => html`<strong>${c}</strong>`, del: c => html`<del>${c}</del>`,
  table: c => html`<div class="wide" tabindex="0" role="group" aria-label="Table"><table>${c}</table></div>`, thead: c => html`<thead>${c}</thead>`, tr: c => html`<tr>${c}</tr>`, th: c => html`<th>${c}</th>`, td: c => html`<td>${c}</td>`,
  pre: (c, n) => html`<pre tabindex="0" class="code" data-lang=${n.lang ? flat(n.lang) : nothing}>${c}</pre>`,
  a: (c, n) => link(n.href, c, said(n.nodes)),
};

const said = nodes => (nodes ?? []).map(n => n.text ?? said(n.nodes)).join('');

// link shows its target, unless that is its text.
export function link(href, content, label) {
  let url;
  try { url = new URL(href); } catch { return [content, ` (${flat(href)})`]; }
  if (!['http:', 'https:', 'mailto:'].includes(url.protocol)) return [content, ` (${flat(href)})`];
  const target = url.href;
  const same = label === target || label + '/' === target;
  return html`<a href=${target} target="_blank" rel="noopener noreferrer">${content}</a>${same ? nothing : html` <span class="target">(${flat(target)})</span>`}`;
}

const build = nodes => (nodes ?? []).map(n => {
  if (!n.tag) return visible(n.text);
  const make = Object.hasOwn(tags, n.tag) ? tags[n.tag] : c => c;
  return make(build(n.nodes), n);
});

// Texts go to the server together, once per frame. The results are kept.
const kept = {markdown: new Map(), diffs: new Map()};
let waiting = null;

function read(kind, text, again) {
  const found = kept[kind].get(text);
  if (found) return found;
  if (!waiting) {
    waiting = {markdown: new Map(), diffs: new Map()};
    requestAnimationFrame(send);
  }
  const list = waiting[kind].get(text);
  if (list) list.push(again); else waiting[kind].set(text, [again]);
  return null;
}

async function send() {
  const batch = waiting;
  waiting = null;
  try {
    const out = await post('/render', {markdown: [...batch.markdown.keys()], diffs: [...batch.diffs.keys()]});
    for (const kind of ['markdown', 'diffs']) {
      [...batch[kind].keys()].forEach((text, i) => {
        if (kept[kind].size > 2000) kept[kind].delete(kept[kind].keys().next().value);
        kept[kind].set(text, out[kind][i]);
      });
    }
  } catch (err) { // until then the text is there as it is
    if (err.status === 0 || err.status >= 500) setTimeout(() => { for (const kind of ['markdown', 'diffs']) for (const [text, list] of batch[kind]) for (const again of list) read(kind, text, again); }, 500);
    return;
  }
  const all = new Set([...batch.markdown.values(), ...batch.diffs.values()].flat());
  for (const again of all) again();
}

// markdown returns rendered Markdown, or the plain text until it is there; then it calls
// again.
export function markdown(text, again) {
  const nodes = read('markdown', text, again);
  return nodes ? html`<div class="prose">${build(nodes)}</div>` : html`<div class="prose plain" dir="auto">${visible(text)}</div>`;
}

// diff returns a unified diff. With pick, lines are buttons: pick(line).
export function diff(text, again, exact = false) {
  const lines = read('diffs', text, again);
  return lines ? diffLines(lines, {exact}) : html`<pre class="code" tabindex="0">${visible(text, exact)}</pre>`;
}

const signs = {add: '+', del: '−', same: ' ', hunk: '', file: ''};

export function diffLines(lines, {exact = false, pick, below} = {}) {
  return html`<div class="diff" role="group" aria-label="Changes" tabindex="0">${lines.map(l => html`<div class="line ${l.kind in signs ? l.kind : 'same'}">
    ${pick && l.kind !== 'hunk' && l.kind !== 'file'
      ? html`<button class="number" aria-label="Comment on line ${l.new || l.old}" @click=${() => pick(l)}>${l.new || l.old}</button>`
      : html`<span class="number">${l.new || l.old || ''}</span>`}<span class="sign">${signs[l.kind] ?? ' '}</span><code>${visible(l.text, exact)}</code></div>${below?.(l) ?? nothing}`)}</div>`;
}

// folded shows the start of a long text, and all of it on demand. open is the Set of unfolded
// keys; again is called when it changes.
export function folded(text, key, open, again, limit = 14) {
  text = String(text ?? '');
  const lines = text.split('\n');
  if (lines.length <= limit + 4 && text.length < 8000) return html`<pre class="code" tabindex="0">${visible(text)}</pre>`;
  const whole = open.has(key);
  const flip = () => { if (whole) open.delete(key); else open.add(key); again(); };
  const shown = whole ? text : lines.slice(0, limit).join('\n').slice(0, 4000);
  return html`<pre class="code" tabindex="0">${visible(shown)}</pre><button class="quiet" @click=${flip}>${whole ? 'Show less' : `Show all ${lines.length} lines (${text.length.toLocaleString()} characters)`}</button>`;
}

// Numbers of agents may be anything: what is no number counts as 0.
const number = x => Number.isFinite(x) ? x : 0;
export const duration = value => durationOf(number(value));
const durationOf = ms => ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60000)} min ${Math.round(ms % 60000 / 1000)} s`;
export const money = value => moneyOf(number(value));
const moneyOf = usd => usd === 0 ? '$0' : usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;

// agentAway shows that a session waits for an agent that is away.
export const agentAway = state => (state.waiting ?? []).filter(w => w.kind === 'agent').map(w =>
  html`<p class="problem away" role="status">Waiting for the agent ${visible(w.about)}, away since ${when(w.since)}.</p>`);

// when shows a time in the browser's zone.
export function when(time) {
  if (!time) return nothing;
  const t = new Date(time);
  const today = t.toDateString() === new Date().toDateString();
  return html`<time datetime=${t.toISOString()} title=${t.toLocaleString()}>${today ? t.toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'}) : t.toLocaleDateString([], {month: 'short', day: 'numeric'})}</time>`;
}
