// Review: what was changed, by turn or all of it, and comments that become the next prompt.
import {html, nothing} from './lit-html.js';
import {attempt, may, post} from './api.js';
import {changes} from './model.js';
import {diffLines, visible} from './text.js';

export function review(session) {
  const all = changes(session.model.items);
  if (!all.length) return html`<p class="empty">Nothing was changed.</p>`;
  const turns = [...new Set(all.map(c => c.turn))];
  const turn = session.reviewTurn ?? 0; // 0: all
  const list = turn ? all.filter(c => c.turn === turn) : all;
  const files = Map.groupBy(list, c => c.path);
  const {comments} = session;
  return html`<div class="row"><label>Show <select id="turn" @change=${e => { session.reviewTurn = Number(e.target.value); session.schedule(); }}>
      <option value="0" ?selected=${!turn}>all changes</option>${turns.map(t => html`<option value=${t} ?selected=${t === turn}>turn ${t}</option>`)}</select></label>
      <span class="gap"></span>
      ${may('drive') ? html`<button class="yes" id="send-comments" ?disabled=${!comments.some(c => c.text.trim())} @click=${() => send(session)}>Send ${comments.length} ${comments.length === 1 ? 'comment' : 'comments'} as a prompt</button>` : nothing}</div>
    ${[...files].map(([path, parts]) => html`<section class="file" aria-label="Changes of a file"><h2><code class="exact">${visible(path, true)}</code></h2>
      ${parts.map(part => diffLines(part.lines, {
        exact: true,
        pick: may('drive') ? line => comment(session, part, line) : undefined,
        below: line => comments.filter(c => c.item === part.item && c.line === line).map(c => html`<div class="comment"><textarea rows="2" aria-label="Comment on line ${line.new || line.old}" .value=${c.text} @input=${e => { c.text = e.target.value; session.schedule(); }}></textarea>
          <button class="quiet" @click=${() => { session.comments = comments.filter(x => x !== c); session.schedule(); }}>Remove</button></div>`),
      }))}</section>`)}`;
}

function comment(session, part, line) {
  if (!session.comments.some(c => c.item === part.item && c.line === line)) session.comments.push({item: part.item, path: part.path, line, text: ''});
  session.schedule();
  requestAnimationFrame(() => requestAnimationFrame(() => [...document.querySelectorAll('.comment textarea')].find(t => !t.value)?.focus()));
}

async function send(session) {
  const list = session.comments.filter(c => c.text.trim());
  const text = 'My comments on your changes:\n\n' + list.map(c => `${c.path}:${c.line.new || c.line.old}${c.line.kind === 'del' ? ' (removed)' : ''}\n> ${c.line.text}\n${c.text.trim()}`).join('\n\n');
  if (!await attempt(() => post(`/sessions/${session.id}/prompts`, {text}))) return;
  session.comments = [];
  session.list.stick = true;
  session.show('timeline');
}
