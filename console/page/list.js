// A List shows many items; only those near the screen are in the page. Each keeps its element,
// so open parts stay open.

const guess = 90, margin = 900; // pixels

export class List {
  constructor(scroller, draw) {
    this.scroller = scroller;
    this.draw = draw; // draws an item into an element
    this.items = [];
    this.parts = new Map(); // by key: {el, height, stale}
    this.top = document.createElement('div');
    this.bottom = document.createElement('div');
    scroller.append(this.top, this.bottom);
    this.stick = true; // it shows the end, and goes on to
    this.last = 0; // where layout scrolled to, for that
    scroller.addEventListener('scroll', () => {
      // The event comes later than the scrolling. If the list has become shorter since, it is not at its end, but
      // nobody scrolled up either.
      const end = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
      this.stick = end || this.stick && scroller.scrollTop >= this.last;
      this.schedule();
    }, {passive: true});
    this.sizes = new ResizeObserver(list => {
      for (const {target} of list) {
        const part = target === scroller ? null : this.parts.get(target.dataset.key);
        if (part && target.isConnected) part.height = target.offsetHeight;
      }
      this.schedule();
    });
    this.sizes.observe(scroller);
  }

  // set shows items; changed are the keys of those that are to be drawn again.
  set(items, changed) {
    this.items = items;
    for (const key of changed) {
      const part = this.parts.get(key);
      if (part) part.stale = true;
    }
    this.schedule();
  }

  redraw(key) {
    const part = this.parts.get(key);
    if (part) { part.stale = true; this.schedule(); }
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.layout(); });
  }

  part(item) {
    let part = this.parts.get(item.key);
    if (!part) {
      const el = document.createElement('div');
      el.className = 'item is-' + item.kind;
      el.dataset.key = item.key;
      part = {el, height: guess, stale: true};
      this.parts.set(item.key, part);
      this.sizes.observe(el);
    }
    return part;
  }

  layout() {
    const {scroller, items} = this;
    const view = scroller.clientHeight || 800;
    const parts = items.map(item => this.parts.get(item.key));
    const height = i => parts[i]?.height ?? guess;
    let total = 0;
    for (let i = 0; i < items.length; i++) total += height(i);
    const y = this.stick ? Math.max(0, total - view) : scroller.scrollTop;
    let from = 0, above = 0;
    while (from < items.length && above + height(from) < y - margin) above += height(from++);
    let to = from, end = above;
    while (to < items.length && end < y + view + margin) end += height(to++);
    // The top of the screen stays in place when heights change.
    let anchor = null, before = 0;
    if (!this.stick) {
      for (let el = this.top.nextSibling; el !== this.bottom; el = el.nextSibling) {
        if (el.offsetTop + el.offsetHeight > scroller.scrollTop) { anchor = el; before = el.offsetTop - scroller.scrollTop; break; }
      }
    }
    let next = this.top.nextSibling;
    for (let i = from; i < to; i++) {
      const part = this.part(items[i]);
      if (part.stale) { part.stale = false; this.draw(items[i], part.el); }
      if (next === part.el) next = next.nextSibling;
      else scroller.insertBefore(part.el, next);
    }
    while (next !== this.bottom) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
    this.top.style.height = above + 'px';
    this.bottom.style.height = Math.max(0, total - end) + 'px';
    if (this.stick) {
      scroller.scrollTop = scroller.scrollHeight;
      this.last = scroller.scrollTop;
    } else if (anchor?.isConnected) {
      const moved = anchor.offsetTop - scroller.scrollTop - before;
      if (Math.abs(moved) > 1) scroller.scrollTop += moved;
    }
  }

  show(key) {
    let y = 0;
    for (const item of this.items) {
      if (item.key === key) break;
      y += this.parts.get(item.key)?.height ?? guess;
    }
    this.stick = false;
    this.scroller.scrollTop = y;
    this.schedule();
  }

  // edge goes to an end at once. On the way there that a browser animates, layout would stop it.
  edge(end) {
    this.scroller.scrollTop = end ? this.scroller.scrollHeight : 0;
    this.stick = end;
    this.schedule();
  }

  close() {
    this.sizes.disconnect();
    cancelAnimationFrame(this.frame);
  }
}
