// The page: who is logged in, and which screen is shown.
import {html, nothing, render} from './lit-html.js';
import {attempt, call, may, notice, post, state} from './api.js';
import {key} from './approval.js';
import {Audit, Cost, Devices, Schedules} from './manage.js';
import {Settings} from './settings.js';
import {Overview} from './overview.js';
import {Session} from './session.js';
import {flat} from './text.js';

const top = document.getElementById('top'), banner = document.getElementById('banner');
let main = document.getElementById('main'), screen = null;
top.replaceChildren(); // until here it was the one of the file, for the first paint

const screens = [
  [/^#?\/?$/, root => new Overview(root)],
  [/^#\/s\/([\w-]+)$/, (root, id) => new Session(root, id)],
  [/^#\/cost$/, root => new Cost(root)],
  [/^#\/schedules$/, root => new Schedules(root)],
  [/^#\/devices$/, root => new Devices(root)],
  [/^#\/audit$/, root => new Audit(root)],
  [/^#\/settings$/, root => new Settings(root)],
];

const places = [['#/', 'Sessions', 'view'], ['#/cost', 'Cost', 'view'], ['#/schedules', 'Schedules', 'view'], ['#/devices', 'Devices', 'admin'], ['#/audit', 'Audit log', 'admin'], ['#/settings', 'Settings', 'view']];

// fresh replaces what is shown by an empty place.
function fresh() {
  screen?.close();
  screen = null;
  const next = main.cloneNode(false);
  main.replaceWith(next);
  main = next;
  return main;
}

function route() {
  if (location.hash === '#main') { main.focus(); history.replaceState(null, '', '#/'); return; }
  if (location.hash.startsWith('#t=')) { enter(); return; }
  if (!state.me) { login(); return; }
  const hash = location.hash || '#/';
  for (const [pattern, make] of screens) {
    const match = hash.match(pattern);
    if (match) { screen = make(fresh(), ...match.slice(1)); header(hash); return; }
  }
  location.replace('#/');
}

function header(hash) {
  render(html`<a class="brand" href="#/">Parley</a><nav aria-label="Screens">${places.filter(p => may(p[2])).map(([href, name]) => html`<a href=${href} aria-current=${href === hash ? 'page' : nothing}>${name}</a>`)}</nav>
    <span class="gap"></span><span class="muted who">${flat(state.me.name)} · ${state.me.scope}</span><button class="quiet" id="logout" @click=${leave}>Log out</button>`, top);
}

async function leave() {
  await attempt(() => post('/logout'));
  state.onlogout();
}

function login() {
  render(nothing, top);
  document.title = 'Log in – Parley';
  render(html`<form class="login new" @submit=${async e => {
    e.preventDefault();
    const text = e.target.elements.token.value.trim();
    await use(text.includes('#t=') ? text.split('#t=')[1] : text);
  }}><h1>Parley</h1><p>Open the link that <code>parley serve</code> printed, or paste it or a token here.</p>
    <label>Token <input name="token" id="token" type="password" autocomplete="off" required></label><button class="yes">Log in</button></form>`, fresh());
}

// use logs in with a token, which the page does not keep.
async function use(token) {
  const me = await attempt(() => post('/login', {token}));
  if (!me) { if (!state.me) login(); return; }
  state.me = me;
  route();
}

// enter logs in with the token of the link, and removes it from the address at once.
async function enter() {
  const token = location.hash.slice(3);
  history.replaceState(null, '', '#/');
  await use(decodeURIComponent(token));
}

state.onlogout = () => { if (state.me) { state.me = null; login(); } };

let late;
state.onconnection = () => {
  clearTimeout(late);
  if (state.down.size) late = setTimeout(() => { banner.hidden = false; }, 100);
  else banner.hidden = true;
};

addEventListener('hashchange', route);
navigator.serviceWorker?.addEventListener('message', event => { location.hash = new URL(event.data).hash; }); // a notification was clicked
addEventListener('keydown', event => {
  if (key(event)) return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.('input, textarea, select')) return;
  if (event.key === '/') {
    const el = document.getElementById('prompt') ?? document.getElementById('search');
    if (el) { event.preventDefault(); el.focus(); }
  } else if (event.key === 'Escape' && screen instanceof Session) location.hash = '#/';
  else if (/^(Home|End)$/.test(event.key) && screen?.list?.scroller.offsetHeight) { event.preventDefault(); screen.list.edge(event.key === 'End'); }
});
addEventListener('unhandledrejection', event => notice(event.reason?.message ?? 'Something went wrong.'));

if (location.hash.startsWith('#t=')) await enter();
else {
  try { state.me = await call('GET', '/me'); } catch { /* nobody is logged in */ }
  route();
}
