package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// TestSite builds the site of this repository: every page is in it and in the navigation, every
// link inside it leads to a file and an id of the site, and nothing is loaded from elsewhere.
func TestSite(t *testing.T) {
	dir := t.TempDir()
	root := os.DirFS(filepath.Join("..", ".."))
	n, err := build(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.html"))
	if err != nil || len(pages) != n || n < 30 {
		t.Fatalf("%d pages of %d (%v)", len(pages), n, err)
	}
	link := regexp.MustCompile(`(href|src|srcset)="([^"]*)"`)
	outside := regexp.MustCompile(`<(script|img|source|link)[^>]*(src|href|srcset)="(https?:)?//`)
	texts := map[string]string{}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(page)] = string(data)
	}
	for name, text := range texts {
		if m := outside.FindString(text); m != "" {
			t.Errorf("%s loads %s, want nothing from the network", name, m)
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[2], ":") {
				continue
			}
			file, anchor, _ := strings.Cut(m[2], "#")
			if file == "" {
				file = name
			}
			if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(file))); err != nil {
				t.Errorf("%s: %s: %v", name, m[0], err)
			}
			if anchor != "" && !strings.Contains(texts[file], `id="`+anchor+`"`) {
				t.Errorf("%s: %s: the page has no such id", name, m[0])
			}
		}
	}
	nav, err := navigation(root)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]bool{url("docs/README.md"): true}
	for _, s := range nav {
		for _, l := range s.Links {
			in[l.URL] = true
		}
	}
	for name := range texts {
		if strings.HasPrefix(name, "docs-") && !in[name] {
			t.Errorf("%s is not in the lists of docs/README.md", name)
		}
	}
	testSearch(t, dir)
}

// The search finds sections without a server. Node plays the browser, if it is installed.
func testSearch(t *testing.T, dir string) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Log("node is not installed: the search does not run here")
		return
	}
	script := `
const fs = require("fs"), vm = require("vm");
const element = { children: [], replaceChildren() {}, append() {} };
const context = { document: { querySelector: () => element, createElement: () => element } };
vm.createContext(context);
vm.runInContext(fs.readFileSync("index.js", "utf8") + fs.readFileSync("search.js", "utf8") + ";globalThis.find = find", context);
for (const query of ["approve web page", "sandbox network", "no such words anywhere zzz", ""]) console.log(query + ": " + context.find(query).map((e) => e.p)[0]);
`
	cmd := exec.Command("node", "-e", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"approve web page: docs-approve.html", "sandbox network: docs-", "zzz: undefined", ": undefined"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the search prints\n%swant %q in it", out, want)
		}
	}
}

// A broken link is an error that names its page.
func TestDeadLinks(t *testing.T) {
	for text, want := range map[string]string{
		"# A\n\n[x](none.md)":   "docs/a.md: the link none.md leads nowhere",
		"# A\n\n[x](#none)":     "docs/a.md: the link docs/a.md#none leads nowhere",
		"# A\n\n![x](none.svg)": "docs/a.md: the link none.svg leads nowhere",
		"# A\n\n## B c!\n\n[x](#b-c) [y](https://example.com/none)": "",
	} {
		_, err := build(fstest.MapFS{"docs/a.md": {Data: []byte(text)}, "docs/README.md": {Data: []byte("# D\n")}}, t.TempDir())
		if got := ""; err != nil || want != "" {
			if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%q: %q, want %q", text, got, want)
			}
		}
	}
}
