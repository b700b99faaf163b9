// Searches the sections of all pages for all words; those with a word in the title come first.
const box = document.querySelector("#search"), found = document.querySelector("#found"), pages = document.querySelector("#pages");
for (const e of index) { e.title = e.t.toLowerCase(); e.text = e.x.toLowerCase(); }
function find(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  return index
    .map((e) => [words.every((w) => e.title.includes(w) || e.text.includes(w)) ? 1 + 10 * words.filter((w) => e.title.includes(w)).length : 0, e])
    .filter(([score]) => score)
    .sort((a, b) => b[0] - a[0])
    .slice(0, 20)
    .map(([, e]) => e);
}
box.oninput = () => {
  found.replaceChildren(...find(box.value).map((e) => {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = e.p;
    link.textContent = e.t;
    item.append(link);
    return item;
  }));
  pages.hidden = box.value.trim() !== "";
  if (pages.hidden && !found.children.length) found.textContent = "Nothing found.";
};
document.onkeydown = (e) => { if (e.key === "/" && e.target !== box) { e.preventDefault(); box.focus(); } };
