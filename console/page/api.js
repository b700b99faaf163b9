// The connection to the server: requests, and streams that go on where they stopped.

export class Failure extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// call sends a request to the API and returns the response.
export async function call(method, path, body) {
  let resp;
  try {
    resp = await fetch('/v1' + path, {
      method,
      headers: body === undefined ? {} : {'Content-Type': 'application/json'},
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Failure(0, 'network', 'The server cannot be reached. Nothing was sent.');
  }
  const text = await resp.text();
  let value = {};
  try { value = JSON.parse(text); } catch { /* an empty body, or that of a proxy */ }
  if (resp.ok) return value;
  if (resp.status === 401 && path !== '/login') state.onlogout();
  throw new Failure(resp.status, value.error?.code ?? '', value.error?.message ?? `The server answered ${resp.status}.`);
}

export const get = path => call('GET', path);
export const post = (path, body = {}) => call('POST', path, body);

// state is what all screens share: who is logged in, and which streams are down.
export const state = {me: null, down: new Set(), onlogout() {}, onconnection() {}};

const order = ['view', 'approve', 'drive', 'admin'];

// may reports whether the token has a scope.
export const may = scope => order.indexOf(state.me?.scope) >= order.indexOf(scope);

const revoked = 4001, notFound = 4004;

// A Stream is a WebSocket that reconnects. path() names the last entry, so nothing is lost or
// repeated.
export class Stream {
  constructor(path, {message, open = () => {}, gone = () => {}}) {
    Object.assign(this, {path, message, open, gone, wait: 250, closed: false});
    this.again = () => { if (!this.socket) { clearTimeout(this.timer); this.connect(); } };
    this.lost = () => this.socket?.close();
    addEventListener('online', this.again);
    addEventListener('offline', this.lost);
    this.connect();
  }

  connect() {
    if (this.closed) return;
    const url = new URL('/v1' + this.path(), location.href);
    url.protocol = url.protocol.replace('http', 'ws');
    const socket = this.socket = new WebSocket(url);
    socket.onopen = () => {
      if (socket !== this.socket) return;
      this.wait = 250;
      state.down.delete(this);
      state.onconnection();
      this.open();
    };
    socket.onmessage = event => { if (socket === this.socket) this.message(JSON.parse(event.data)); };
    socket.onclose = async event => {
      if (socket !== this.socket || this.closed) return;
      this.socket = null;
      if (event.code === notFound) { this.close(); this.gone(); return; }
      if (event.code === revoked) { this.close(); state.onlogout(); return; }
      state.down.add(this);
      state.onconnection();
      // A refused handshake looks like a lost connection: ask whether the token still counts.
      if (event.code === 1006 && navigator.onLine) {
        try { await get('/me'); } catch { /* a 401 has led to the login */ }
        if (this.closed || this.socket) return;
      }
      this.timer = setTimeout(this.again, this.wait * (0.75 + Math.random() / 2));
      this.wait = Math.min(this.wait * 2, 5000);
    };
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    removeEventListener('online', this.again);
    removeEventListener('offline', this.lost);
    this.socket?.close();
    this.socket = null;
    if (state.down.delete(this)) state.onconnection();
  }
}

// notice shows a message for a while.
let clearing;
export function notice(text) {
  const box = document.getElementById('notice');
  box.textContent = text;
  box.hidden = text === '';
  clearTimeout(clearing);
  clearing = setTimeout(() => { box.hidden = true; }, 8000);
}

// attempt calls a function. It shows an error and returns undefined.
export async function attempt(work) {
  try {
    return await work();
  } catch (err) {
    notice(err.message);
    return undefined;
  }
}
